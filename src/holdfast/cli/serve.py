"""`holdfast serve`: let others reach the store over HTTP."""

import logging
import sys
from pathlib import Path

import click

from holdfast.cli.durations import Duration
from holdfast.cli.options import chosen_store, store_option
from holdfast.core.errors import Invalid
from holdfast.server.app import SERVICES

WAIT_SECONDS_MAX = 60.0


class Services(click.ParamType[tuple[str, ...]]):
    """Names of services, separated by commas."""

    name = "services"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(str(value).split(",")))
        for name in names:
            if name not in SERVICES:
                self.fail(f"{name!r} is no service; there are {', '.join(SERVICES)}.", param, ctx)
        return names


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True,
    help="Where to listen; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--services", type=Services(), metavar="NAMES", default=",".join(SERVICES), show_default=True,
    help="What to serve: the queue of job.v1, its event streams, holdfast.v1.",
)  # fmt: skip
@click.option("--keys", is_flag=True, help="Let nobody in without a key: holdfast keys create.")
@click.option(
    "--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate, PEM."
)
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front of this server has TLS.")
@click.option(
    "--poll",
    type=Duration(),
    metavar="TIME",
    help="How long DequeueJob waits for a job.  [default: 5s]",
)
@click.option(
    "--queue-limit", type=click.IntRange(1), default=1_000_000, show_default=True,
    help="Waiting jobs a queue may have before more are refused.",
)  # fmt: skip
@store_option
def serve(
    listen: str,
    services: tuple[str, ...],
    keys: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    poll: object,
    queue_limit: int,
) -> None:
    """Serve the store to workers and clients elsewhere, in any language.

    Any number of servers may share one PostgreSQL store. With --store http://HOST:PORT every other
    command, the Python client and workers use a server in place of a store.

    \b
    Without --keys everybody who can connect may do everything: it listens
    on this machine only. For others:
      holdfast keys create ana --may admin,observe
      holdfast serve --keys --listen 0.0.0.0:8080 --tls-cert C --tls-key K
    """
    import uvloop

    from holdfast.cli.serving import run
    from holdfast.server.context import Settings
    from holdfast.server.serving import Place, check_place

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise click.UsageError(f"--listen {listen!r} is not HOST:PORT, such as 127.0.0.1:8080.")
    seconds = 5.0 if poll is None else poll.total_seconds()  # type: ignore[attr-defined]
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise Invalid(f"--poll is from 0 to {WAIT_SECONDS_MAX:g} seconds.")
    place = Place(
        host=host.strip("[]"),
        port=int(port),
        certificate=tls_cert,
        certificate_key=tls_key,
        proxy=behind_proxy,
    )
    check_place(place, keys=keys)
    settings = Settings(
        services=services, keys=keys, poll_seconds=seconds, queue_items_max=queue_limit
    )
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    uvloop.run(run(chosen_store(), place, settings))
