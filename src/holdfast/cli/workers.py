"""`holdfast workers`: who is there to do the work."""

from collections.abc import Sequence
from datetime import datetime

import click

from holdfast.cli.json_output import print_json
from holdfast.cli.layout import Column
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import age, note, rows, shorten
from holdfast.core.workers import WorkerInfo
from holdfast.ports import Registry

_COLUMNS = (
    Column("WORKER", least=12),
    Column("STATE"),
    Column("BUSY"),
    Column("SEEN", rank=1),
    Column("QUEUES", least=10),
    Column("KINDS", least=10),
)
_NAMES_WIDTH = 40


@click.command()
@click.option("--queue", "-q", help="Only those that serve this queue.")
@click.option(
    "--all", "everything", is_flag=True, help="Also those that left or fell silent in the last day."
)
@click.option("--json", "as_json", is_flag=True, help='Everything that they announced: {"workers": [...]}')
@store_option
def workers(*, queue: str | None, everything: bool, as_json: bool) -> None:
    """List the workers: their queues and kinds, and how many of their slots are busy.

    A worker announces itself every quarter of a minute; one that has not for a minute counts as gone.
    """
    run(lambda registry: _list(registry, queue, everything=everything, as_json=as_json))


async def _list(registry: Registry, queue: str | None, *, everything: bool, as_json: bool) -> None:
    known, now = await registry.workers(queue), await registry.now()
    found = sorted(
        (one for one in known if everything or one.live(now)),
        key=lambda one: (not one.live(now), one.name, one.instance),
    )
    if as_json:
        print_json({"workers": [worker_document(one, now) for one in found]})
    elif found:
        rows(_COLUMNS, [_row(one, now) for one in found])
    else:
        note(_empty_text(queue, gone=len(known)))


def worker_document(worker: WorkerInfo, now: datetime) -> dict[str, object]:
    """Return all that is known of a worker, with its state as a word."""
    fields = {name: getattr(worker, name) for name in worker.__struct_fields__}
    return {"name": fields.pop("name"), "state": worker.state(now), **fields}


def _row(worker: WorkerInfo, now: datetime) -> tuple[str, ...]:
    return (
        worker.name,
        worker.state(now),
        f"{worker.busy}/{worker.slots}",
        age(now - worker.seen_at),
        names(worker.queues),
        names(worker.kinds),
    )


def names(found: Sequence[str]) -> str:
    """Return as many of the names as stay easy to read, and how many more there are."""
    shown = len(found)
    while shown > 1 and len(", ".join(found[:shown])) > _NAMES_WIDTH:
        shown -= 1
    more = f" +{len(found) - shown}" if shown < len(found) else ""
    return shorten(", ".join(found[:shown]), _NAMES_WIDTH) + more


def _empty_text(queue: str | None, *, gone: int) -> str:
    served = f" that serves queue {queue}" if queue else ""
    option = f" -q {queue}" if queue else ""
    if gone:
        return f"There is no worker now{served}. See those of the last day: holdfast workers --all{option}"
    return f"There is no worker{served}. Start one: holdfast worker{option}"
