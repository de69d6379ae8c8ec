"""`holdfast keys`: who may call a server, for what, and until when."""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TypeVar

import click

from holdfast.cli.durations import Duration
from holdfast.cli.exit_codes import error_exit
from holdfast.cli.json_output import print_json
from holdfast.cli.layout import Column
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import clock, note, rows, say
from holdfast.cli.terminal_escape import plain
from holdfast.core.access import Key, Scope, scope_of
from holdfast.core.errors import Exhausted, Invalid, NotFound
from holdfast.core.explanation import format_duration
from holdfast.core.limits import KEY_LIFE_DEFAULT
from holdfast.ports import Registry
from holdfast.sdk.defaults import actor

T = TypeVar("T")

_COLUMNS = (
    Column("KEY"),
    Column("NAME"),
    Column("MAY", least=12),
    Column("QUEUES", rank=1, least=8),
    Column("REGIONS", rank=2, least=8),
    Column("EXPIRES", least=10),
)


class Scopes(click.ParamType[tuple[Scope, ...]]):
    """Scopes with commas between them."""

    name = "scopes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Scope, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(scope_of(word.strip()) for word in str(value).split(","))
        except Invalid as error:
            self.fail(error.message, param, ctx)


@click.group("keys")
def keys() -> None:
    """Create, list and revoke API keys for the clients of a server."""


@keys.command("create")
@click.argument("name")
@click.option(
    "--may",
    "scopes",
    type=Scopes(),
    required=True,
    metavar="SCOPE,...",
    help=f"What the key allows: {', '.join(Scope)}.",
)
@click.option(
    "--queue",
    "-q",
    "queues",
    multiple=True,
    metavar="GLOB",
    help="Only these queues; * stands for anything. May be given several times.  [default: all]",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    help="Only these regions, and jobs without a region. May be given several times.  [default: all]",
)
@click.option(
    "--expires",
    "life",
    type=Duration(unit=True),
    metavar="DURATION",
    help=f"How long it is valid, such as 30d.  [default: {KEY_LIFE_DEFAULT.days}d]",
)
@click.option("--json", "as_json", is_flag=True, help="The key and what it allows, as JSON.")
@store_option
def create_key(
    name: str,
    *,
    scopes: tuple[Scope, ...],
    queues: tuple[str, ...],
    regions: tuple[str, ...],
    life: timedelta | None,
    as_json: bool,
) -> None:
    """Create a key for NAME and print it. It is shown only once: the store keeps only its digest.

    A name may have two keys at a time, so that a new one can be handed out before the old one is
    revoked.
    """

    async def work(registry: Registry) -> tuple[Key, str]:
        return await _with_key_advice(
            registry.create_key(
                name=name,
                scopes=scopes,
                queues=queues or ("*",),
                regions=regions,
                life=life,
                actor=actor(),
            )
        )

    key, text = run(work, create=True)
    if as_json:
        print_json({"key": text, **_document(key)})
    else:
        click.echo(text)
    note(
        f"The key is shown only once: keep it where {key.name} finds it. It is valid until"
        f" {clock(key.expires_at)}.\n"
        "Commands and workers take it from HOLDFAST_KEY, or from the file that HOLDFAST_KEY_FILE"
        " names; other programs send it as Authorization: Bearer KEY."
    )


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help='{"keys": [...]}')
@store_option
def list_keys(*, as_json: bool) -> None:
    """List every key, the oldest first, also those that have expired or were revoked."""
    run(lambda registry: _list(registry, as_json=as_json))


async def _list(registry: Registry, *, as_json: bool) -> None:
    found = await registry.list_keys()
    if as_json:
        print_json({"keys": [_document(key) for key in found]})
    elif found:
        now = await registry.now()
        rows(_COLUMNS, [_row(key, now) for key in found])
    else:
        note("There are no keys yet. Create one: holdfast keys create NAME --may submit")


def _row(key: Key, now: datetime) -> tuple[str, ...]:
    where = (",".join(part) for part in (key.scopes, key.queues, key.regions))
    return (key.key_id, key.name, *where, _expiry(key, now))


def _expiry(key: Key, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    left = key.expires_at - now
    if left <= timedelta():
        return "expired"
    days = left / timedelta(days=1)
    return f"in {days:.0f} days" if days >= 2 else f"in {format_duration(left)}"


@keys.command("revoke")
@click.argument("key_id")
@store_option
def revoke_key(key_id: str) -> None:
    """Revoke a key, at once and for good."""

    async def work(registry: Registry) -> Key:
        return await _with_key_advice(registry.revoke_key(key_id, actor=actor()))

    key = run(work)
    say(plain(f"Key {key.key_id} of {key.name} is revoked, since {clock(key.revoked_at)}."))


async def _with_key_advice(call: Awaitable[T]) -> T:
    """Return the result of the call, or exit with advice about keys: that of `run` is about jobs."""
    try:
        return await call
    except (NotFound, Exhausted) as error:
        note(f"Error: {plain(error.message)}\nSee them all: holdfast keys list")
        raise click.exceptions.Exit(error_exit(error)) from error


def _document(key: Key) -> dict[str, object]:
    """Return all fields but the digest, which has no use outside the store."""
    fields = (name for name in key.__struct_fields__ if name != "digest")
    return {name: getattr(key, name) for name in fields}
