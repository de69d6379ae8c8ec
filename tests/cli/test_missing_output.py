"""What `logs`, `why` and `status` say of output that is missing, refused, or contradicts the result."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import Exhausted, Invalid
from holdfast.core.lifecycle import Success
from holdfast.core.limits import EVENT_BYTES
from holdfast.core.output_chunks import encode_batch
from holdfast.ports import Registry
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import fill
from tests.cli.command_line import CommandLine, output


def test_logs_say_on_stderr_what_never_arrived(cli: CommandLine) -> None:
    job_id = cli.submit()
    events = [output(1, b"a\n"), output(4, b"b\n"), output(5, b"c\n")]
    cli.finish(job_id, None, *events)

    for options in ([], ["-f"]):
        result = cli.run("logs", *options, job_id)
        assert result.stdout == "a\nb\nc\n"
        assert result.stderr == (
            "Events 2 to 3 of attempt 1 never arrived.\n"
            "2 events of attempt 1 never arrived: its output has gaps.\n"
        )
    assert "2 events of attempt 1 never arrived" in cli.run("why", job_id).stdout
    assert "2 events of attempt 1 never arrived" in cli.run("status", job_id).stdout
    assert cli.run("logs", "--attempt", "2", job_id).stderr == ""


def test_logs_take_what_was_pruned_for_no_loss(cli: CommandLine) -> None:
    whole, lacking = cli.submit(), cli.submit()
    cli.finish(whole, None, output(1, b"a\n"))
    cli.finish(lacking, None, output(2, b"b\n"))

    assert cli.run("logs", whole).stderr == ""
    assert "Event 1 of attempt 1 never arrived." in cli.run("logs", lacking).stderr
    cli.registry(lambda registry: registry.prune(older_than=timedelta(days=1), output_older_than=timedelta()))
    assert cli.run("logs", whole).output == ""


def test_logs_and_why_say_what_was_refused_and_what_contradicts_the_result(
    cli: CommandLine,
) -> None:
    job_id = cli.submit()
    ended = replace(
        output(1, b""), event_type=WorkerEventType.PROCESS_END, data=None, stream=None,
        attributes={"exit_code": 3},
    )  # fmt: skip

    async def work(registry: Registry) -> None:
        grant = await registry.acquire(job_id, owner="w1")
        with pytest.raises(Invalid):
            await registry.publish(grant, [output(1, bytes(600_000))])
        await registry.publish(grant, [ended])
        await registry.complete(grant, Success(result={"exit_code": 0}))

    cli.registry(work)

    told = cli.run("logs", job_id).stderr
    assert "Once what attempt 1 published was refused: Output in one event has 600,000" in told
    assert "success with exit code 0, but its process ended with 3" in told
    assert told.splitlines()[-1] in cli.run("why", job_id).stdout
    assert "job_publish_refused" in cli.run("events", job_id).stdout


def test_events_say_what_is_in_a_batch(cli: CommandLine) -> None:
    job_id = cli.submit()
    data, attributes = encode_batch([("stdout", b"ab", 0), ("stderr", b"c", 5)])
    whole = replace(
        output(1, data), event_type=WorkerEventType.OUTPUT_BATCH, end_sequence=2, stream=None,
        attributes=attributes,
    )  # fmt: skip
    cli.finish(job_id, None, whole)

    [line] = [one for one in cli.run("events", job_id).stdout.splitlines() if "batch" in one]
    assert "stderr and stdout, 2 pieces up to 1.2, 3 bytes, by worker:w1" in line
    assert "None" not in line
    assert "items" not in line


@pytest.mark.parametrize(("script", "code"), [("echo out; echo err >&2", 0), ("exit 3", 3)])
def test_our_own_worker_leaves_no_flaws(cli: CommandLine, script: str, code: int) -> None:
    job_id = cli.submit(command=("sh", "-c", script))

    cli.run("worker", "--drain")

    job = cli.registry(lambda registry: registry.status(job_id))
    told = cli.run("logs", job_id).stderr
    assert (job.flaws is None) == (code == 0)
    assert job.owner_ended_at is not None
    assert "never arrived" not in told
    assert "refused" not in told
    assert "reported success" not in told


def test_logs_why_and_status_say_what_is_beyond_the_quota_of_an_attempt(cli: CommandLine) -> None:
    job_id = cli.submit()

    async def work(registry: Registry) -> None:
        assert isinstance(registry, LocalRegistry)
        grant = await registry.acquire(job_id, owner="w1")
        await fill(registry._store, job_id, EVENT_BYTES + 5)
        with pytest.raises(Exhausted, match="The job goes on"):
            await registry.publish(grant, [output(1, b"kept\n"), output(2, b"dropped\n")])
        await registry.complete(grant, Success(result={"exit_code": 0}))

    cli.registry(work)

    words = "8 bytes were not kept of the output of attempt 1: an attempt may publish 1 GiB."
    told = cli.run("logs", job_id)
    assert told.stdout == "kept\n"
    assert told.stderr.splitlines()[-1] == words
    assert "attempt 1 published here was refused: An attempt may publish 1 GiB" in told.stderr
    assert words in cli.run("why", job_id).stdout
    assert words in cli.run("status", job_id).stdout
