"""JSON documents on a terminal or in a pipe."""

from collections.abc import Mapping

import click
import msgspec

from holdfast.cli.safe import json_text


def print_json(document: Mapping[str, object], *, indent: bool = True) -> None:
    """One JSON document: on one line, or spread for people."""
    click.echo(encode(document, indent=indent))


def encode(document: Mapping[str, object], *, indent: bool = False) -> str:
    encoded = msgspec.json.encode(document)
    return json_text(msgspec.json.format(encoded, indent=2) if indent else encoded)
