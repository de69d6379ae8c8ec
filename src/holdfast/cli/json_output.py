"""JSON documents on a terminal or in a pipe."""

from collections.abc import Mapping

import click
import msgspec

from holdfast.cli.terminal_escape import json_text


def print_json(document: Mapping[str, object], *, indent: bool = True) -> None:
    """Print one JSON document: on one line, or indented for people."""
    click.echo(encode_json(document, indent=indent))


def encode_json(document: object, *, indent: bool = False) -> str:
    encoded = msgspec.json.encode(document)
    return json_text(msgspec.json.format(encoded, indent=2) if indent else encoded)
