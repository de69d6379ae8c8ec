"""`holdfast queues`: the queues, their jobs, and who serves them."""

from datetime import datetime

import click

from holdfast.cli.json_output import print_json
from holdfast.cli.layout import Column
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import age, note, rows
from holdfast.cli.workers import names
from holdfast.core.workers import QueueInfo
from holdfast.ports import Registry

_COLUMNS = (
    Column("QUEUE", least=12),
    Column("READY"),
    Column("OLDEST", rank=1),
    Column("LATER", rank=3),
    Column("RUNNING", rank=2),
    Column("DEAD", rank=4),
    Column("BUSY", rank=5),
    Column("WORKERS", least=10),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help='{"queues": [...]}')
@store_option
def queues(*, as_json: bool) -> None:
    """List the queues: jobs that are ready, since when the oldest waits, jobs for later, running jobs,
    dead letters, busy slots, and the workers that serve it.
    """
    run(lambda registry: _list(registry, as_json=as_json))


async def _list(registry: Registry, *, as_json: bool) -> None:
    found, now = await registry.queues(), await registry.now()
    if as_json:
        print_json({"queues": [queue_document(one) for one in found]})
    elif found:
        rows(_COLUMNS, [_row(one, now) for one in found])
    else:
        note("There are no queues yet: no jobs, and no workers. Submit one: holdfast submit -- echo hello")


def queue_document(queue: QueueInfo) -> dict[str, object]:
    """Return all that is known of a queue."""
    fields = {name: getattr(queue, name) for name in queue.__struct_fields__}
    return {"queue": fields.pop("queue"), "ready": queue.ready, **fields}


def _row(queue: QueueInfo, now: datetime) -> tuple[str, ...]:
    return (
        queue.queue,
        short_count(queue.ready),
        age(now - queue.oldest_ready_at) if queue.oldest_ready_at else "-",
        short_count(queue.delayed) + ("+" if queue.many_delayed else ""),
        short_count(queue.running),
        short_count(queue.dead_letters),
        f"{short_count(queue.busy)}/{short_count(queue.slots)}" if queue.workers else "-",
        _served(queue, now),
    )


def _served(queue: QueueInfo, now: datetime) -> str:
    if queue.workers:
        return names(queue.workers)
    return f"none for {age(now - queue.asked_at)}" if queue.asked_at else "none seen"


def short_count(number: int) -> str:
    """Return a count in at most five characters, up to ten millions."""
    return f"{number:,}" if number < 10_000 else f"{number // 1000}k"
