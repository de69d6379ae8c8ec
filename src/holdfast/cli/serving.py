"""The server that `holdfast serve` runs, from its opening to its end."""

import click

from holdfast.cli.safe import plain
from holdfast.core.errors import Invalid
from holdfast.sdk.open import open_local, shown_url
from holdfast.server.app import App
from holdfast.server.context import Settings
from holdfast.server.serving import Place, Server
from holdfast.system import SystemClock, SystemIds, settle_memory


async def run(url: str, place: Place, settings: Settings) -> None:
    """Serve the store until told to stop."""
    if url.startswith(("http:", "https:")):
        raise Invalid("A server serves a store, not another server: give --store a store's URL.")
    registry = await open_local(url)
    try:
        now = await registry.now()
        if settings.keys and not any(key.active(now) for key in await registry.keys()):
            raise Invalid(
                "No key in this store counts, so nobody could come in: holdfast keys create ana"
                " --may admin,admin:keys"
            )
        clock, ids = SystemClock(), SystemIds()
        server = Server(App(registry, clock, ids, settings), place, clock, ids)
        settle_memory(ours=True)
        await server.run_until_stopped(lambda here: _opened(here, url, settings))
        click.echo("Stopped: what was answered is stored.", err=True)
    finally:
        await registry.close()


def _opened(place: Place, url: str, settings: Settings) -> None:
    who = "for holders of keys" if settings.keys else "for everybody on this machine"
    click.echo(
        f"{place.url} serves {plain(shown_url(url))} ({', '.join(settings.services)}) {who}."
        " Ctrl-C stops it.",
        err=True,
    )
