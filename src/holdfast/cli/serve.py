"""`holdfast serve`: serve the store over HTTP."""

from datetime import timedelta
from pathlib import Path

import click

from holdfast.cli.durations import Duration
from holdfast.cli.options import (
    chosen_store,
    config_option,
    given_outputs,
    outputs_option,
    store_option,
)
from holdfast.server.app import SERVICES

WAIT_MAX = timedelta(seconds=60)


class Services(click.ParamType[tuple[str, ...]]):
    """Names of services, separated by commas."""

    name = "services"
    is_list = True

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(str(value).split(",")))
        for name in names:
            if name not in SERVICES:
                self.fail(f"{name!r} is not a service; there are {', '.join(SERVICES)}.", param, ctx)
        return names


class Listen(click.ParamType[tuple[str, int]]):
    """HOST:PORT."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            self.fail(f"{value!r} is not HOST:PORT, such as 127.0.0.1:8080.", param, ctx)
        return host.strip("[]"), int(port)


@click.command()
@click.option(
    "--listen", type=Listen(), metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True,
    help="Address to listen on; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--grpc", "grpc_listen", type=Listen(), metavar="HOST:PORT",
    help="Address to listen on for gRPC, as well; needs holdfast[grpc].",
)  # fmt: skip
@click.option(
    "--services", type=Services(), metavar="NAMES", default=",".join(SERVICES), show_default=True,
    help="What to serve: jobs (the queue of job.v1), events (its streams), registry (holdfast.v1),"
    " rest (/v1, /registry and /docs).",
)  # fmt: skip
@click.option("--keys/--no-keys", help="Require an API key: holdfast keys create.")
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key.")
@click.option("--behind-proxy/--no-behind-proxy", help="A proxy in front of this server terminates TLS.")
@click.option(
    "--poll",
    type=Duration(most=WAIT_MAX),
    metavar="TIME",
    default="5s",
    show_default=True,
    help="How long DequeueJob waits for a job, if its client sends no deadline.",
)
@click.option(
    "--queue-limit", type=click.IntRange(1), default=1_000_000, show_default=True,
    help="Waiting jobs a queue may have before more are refused.",
)  # fmt: skip
@click.option(
    "--log", "style", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Format of the log on stderr: lines for people, or JSON.",
)  # fmt: skip
@click.option("--verbose/--no-verbose", help="Log every refused call, too.")
@store_option
@outputs_option
@config_option
def serve(
    listen: tuple[str, int],
    grpc_listen: tuple[str, int] | None,
    services: tuple[str, ...],
    keys: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    poll: timedelta,
    queue_limit: int,
    style: str,
    verbose: bool,
) -> None:
    """Serve the store to workers and clients elsewhere, in any language.

    Any number of servers may share one PostgreSQL store. With --store http://HOST:PORT every other
    command, the Python client and workers use a server in place of a store. With an output store it
    validates what jobs promised, there and nowhere else.

    \b
    Without --keys every client may do everything, so it listens on this
    machine only. For other machines:
      holdfast keys create ana --may admin,observe
      holdfast serve --keys --listen 0.0.0.0:8080 --tls-cert C --tls-key K
    """
    import uvloop
    from msgspec.structs import replace

    from holdfast.cli.server_log import ServerLog
    from holdfast.cli.server_process import run_server
    from holdfast.cli.traces import traced
    from holdfast.server.context import ServerSettings
    from holdfast.server.http_server import ListenAddress, check_address

    host, port = listen
    place = ListenAddress(
        host=host,
        port=port,
        certificate=tls_cert,
        certificate_key=tls_key,
        proxy=behind_proxy,
    )
    check_address(place, keys=keys)
    grpc_place = None
    if grpc_listen is not None:
        grpc_place = replace(place, host=grpc_listen[0], port=grpc_listen[1])
        check_address(grpc_place, keys=keys)
    settings = ServerSettings(
        services=services, keys=keys, poll_seconds=poll.total_seconds(), queue_items_max=queue_limit
    )
    log = ServerLog(style, verbose=verbose)
    try:
        with traced("holdfast-server"):
            uvloop.run(run_server(chosen_store(), place, settings, log, grpc_place, given_outputs()))
    finally:
        log.close()
