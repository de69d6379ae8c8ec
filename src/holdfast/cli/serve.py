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
from holdfast.core.errors import Invalid
from holdfast.server.app import SERVICES
from holdfast.server.cors import ANY, check_origin

WAIT_MAX = timedelta(seconds=60)
LOCALHOST = "127.0.0.1"
PORT_MAX = 65_535


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
    """HOST:PORT, or a port of this machine alone."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if (colon and not host) or not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
            self.fail(f"{value!r} is not HOST:PORT or a port, such as 127.0.0.1:8080 or 8080.", param, ctx)
        return host.strip("[]") or LOCALHOST, int(port)


class Origin(click.ParamType[str]):
    """The origin of a page: scheme, host and port."""

    name = "origin"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_origin(str(value))
        except Invalid as error:
            self.fail(error.message, param, ctx)


@click.command()
@click.option(
    "--listen", type=Listen(), metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True,
    help="Address to listen on, or a port of this machine alone; port 0 takes a free one.",
)  # fmt: skip
@click.option("--host", metavar="HOST", help="The host of --listen by itself.")
@click.option(
    "--port", type=click.IntRange(0, PORT_MAX), metavar="PORT", help="The port of --listen by itself."
)
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
    "--cors-origin", "cors_origins", type=Origin(), metavar="ORIGIN", multiple=True,
    help="Let pages of this origin call the server from a browser, such as https://app.example.org; may be"
    " given several times. With --keys, * is every origin.",
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
    *,
    listen: tuple[str, int],
    host: str | None,
    port: int | None,
    grpc_listen: tuple[str, int] | None,
    services: tuple[str, ...],
    keys: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    poll: timedelta,
    queue_limit: int,
    cors_origins: tuple[str, ...],
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

    _check_given_once(host, port)
    place = ListenAddress(
        host=listen[0] if host is None else host.strip("[]"),
        port=listen[1] if port is None else port,
        certificate=tls_cert,
        certificate_key=tls_key,
        proxy=behind_proxy,
    )
    check_address(place, keys=keys)
    grpc_place = None
    if grpc_listen is not None:
        grpc_place = replace(place, host=grpc_listen[0], port=grpc_listen[1])
        check_address(grpc_place, keys=keys)
    if ANY in cors_origins and not keys:
        raise Invalid(
            "--cors-origin '*' lets every page in a browser in: name the origins, or require --keys."
        )
    settings = ServerSettings(
        services=services,
        keys=keys,
        poll_seconds=poll.total_seconds(),
        queue_items_max=queue_limit,
        cors_origins=cors_origins,
    )
    log = ServerLog(style, verbose=verbose)
    try:
        with traced("holdfast-server"):
            uvloop.run(run_server(chosen_store(), place, settings, log, grpc_place, given_outputs()))
    finally:
        log.close()


def _check_given_once(host: str | None, port: int | None) -> None:
    """Refuse an address that is given whole and in parts. A setting may have it whole."""
    context = click.get_current_context()
    whole = context.get_parameter_source("listen") is click.core.ParameterSource.COMMANDLINE
    if whole and (host is not None or port is not None):
        raise click.UsageError("Give --listen HOST:PORT, or --host and --port, not both.")
