"""The page for operators: every command in it is one, every figure was measured, every output is real."""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.manifest import Task, encode_task
from holdfast.outputs.url import open_outputs
from holdfast.sdk.open import open_registry
from tests.deploy.test_deploy import DEPLOY, ROOT, accepted, instructions

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
FIGURES = ROOT / "bench" / "results" / "footprint.json"

_FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CALL = re.compile(
    r"(?:[\d*]+ [\d*]+ \* \* \*  \w+  )?(?:sudo -u \w+ )?"
    r"(?:docker compose -f \S+ run --rm server|holdfast) (.*)"
)
_NUMBER = re.compile(r"\d[\d,.]*( ?[kMG]?B)?")


def calls() -> Iterator[str]:
    """What follows `holdfast` wherever it is called: in a block, or between backticks."""
    for body in _FENCE.findall(PAGE):
        prompts = re.findall(r"^\$ (.*)", body, re.MULTILINE) or body.splitlines()
        yield from (found[1] for line in prompts if (found := _CALL.fullmatch(line)))
    yield from re.findall(r"`holdfast ([a-z][^`…]*)`", PAGE)


def words(call: str) -> list[str]:
    """The words up to a pipe; a date within a name is none of ours."""
    return shlex.split(re.sub(r"\$\(.*?\)", "x", call).partition(" | ")[0])


def shape(text: str) -> str:
    return _NUMBER.sub("0", text.strip())


def test_every_command_on_the_page_is_taken_by_the_program(tmp_path: Path) -> None:
    made = tmp_path / "jobs.db"
    made.touch()
    found = [words(call.replace("/var/backups/jobs.db", str(made))) for call in calls()]

    assert len(found) > 50
    assert {"backup", "restore", "why", "doctor", "verify", "events", "dead-letters", "list"} <= {
        call[0] for call in found
    }
    assert [call for call in found if not accepted(call)] == []


def test_every_figure_of_disk_and_memory_is_the_one_that_was_measured() -> None:
    figures = [(one["name"], one["ours"]) for one in json.loads(FIGURES.read_text())["figures"]]
    memory = {name.partition(" that ")[2] or name: round(value) for name, value in figures[:3]}
    rows: dict[str, list[str]] = {}
    for (name, waiting), (_, ended) in zip(figures[3::3], figures[4::3], strict=True):
        kind = name.split(": ")[1]
        rows.setdefault(f"have ended, {kind}", []).append(f"{ended / 1000:.1f} GB")
        if "no output" in kind:
            held = f"wait, {kind.removesuffix(', no output')} each"
            rows.setdefault(held, []).append(f"{waiting / 1000:.1f} GB")
    del rows["wait, 1 kB of payload each"]

    for name, (sqlite, postgres) in rows.items():
        assert f"| {name} | {sqlite} | {postgres} |" in PAGE
    assert f"| a server that idles | {memory['server, idle']} MB |" in PAGE
    assert f"waits for a job | {memory['wait for a job']} kB" in PAGE
    assert f"follows a job | {memory['follow a job']} kB" in PAGE


async def announce_worker(url: str) -> None:
    registry = await open_registry(url)
    await registry.announce("w1", instance="1", queues=["default"], kinds=["command"])
    await registry.close()


def test_what_the_page_shows_is_what_is_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    runner = CliRunner(env={"HOLDFAST_STORE": url})

    def said(*call: str) -> str:
        done = runner.invoke(cli, call)
        assert done.exit_code == 0, done.output
        return done.stdout

    said("submit", "--job-id", "nightly", "-q", "reports", "--", "true")
    said("submit", "--job-id", "later", "--delay", "2h", "--", "true")
    said("submit", "--job-id", "invoice-7", "--", "./invoice", "7")
    asyncio.run(announce_worker(url))
    shown = [said("why", "nightly"), said("why", "later")]
    said("cancel", "invoice-7", "--reason", "wrong month")
    shown += said("verify").splitlines()
    copy = str(tmp_path / "copy.db")
    assert re.fullmatch(r"Wrote .*, [\d,]+ bytes\.\n", said("backup", copy))
    (tmp_path / "jobs.db").unlink()
    shown += said("restore", copy).splitlines()[1:]
    shown += said("keys", "list").splitlines()
    events = said("events", "invoice-7")

    page = shape(PAGE).replace("1 job,", "0 jobs,").replace("0 job,", "0 jobs,")
    for line in shown:
        assert shape(line) in page
    assert re.search(r"job_cancelled +queued -> cancelled, attempt 1, by user:\w+, wrong month", events)
    assert "job_cancelled           queued -> cancelled, attempt 1, by user:ben, wrong month" in PAGE


def test_what_the_page_shows_of_a_job_that_stays_validating_is_what_is_said(tmp_path: Path) -> None:
    url, place = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "results"
    runner = CliRunner(env={"HOLDFAST_STORE": url, "HOLDFAST_OUTPUTS": str(place)})
    task = tmp_path / "tasks.jsonl"
    bundle = f"sha256:{64 * 'a'}"
    task.write_bytes(encode_task(Task(bundle=bundle, entrypoint="sir", seed=1)))

    def said(*call: str) -> str:
        done = runner.invoke(cli, call)
        assert done.exit_code == 0, done.output
        return done.stdout.replace(str(tmp_path), "/mnt")

    async def leave_validating() -> None:
        registry = await open_registry(url)
        grant = await registry.acquire("study-7", owner="w1")
        await registry.complete(grant, Success())
        place.rename(tmp_path / "away")
        with pytest.raises(Unavailable) as unseen:
            await open_outputs(str(place), create=False)
        await registry.report_validation("study-7", actor="validator:w1", trouble=unseen.value.message)
        await registry.close()

    said("submit", "--job-id", "study-7", "--manifest", str(task), "--", "./study.sh")
    asyncio.run(leave_validating())
    moment = re.compile(r"[\d-]+T[\d:]+Z|[\d.]+ s\b|user:\w+")
    shown = [*said("list", "--state", "validating").splitlines(), said("why", "study-7")]
    reason = ["--reason", "ana has seen all of them"]
    shown += [said("validate", "study-7", "--override", "succeeded", *reason)]
    shown += [said("why", "study-7")]

    for line in shown:
        assert moment.sub("…", line.strip()) in moment.sub("…", PAGE)


def test_the_page_speaks_of_the_files_there_are() -> None:
    installed = re.findall(r"deploy/systemd/([\w@.]+\.\w+)", PAGE)
    user = dict(instructions(DEPLOY / "Containerfile"))["USER"]

    assert {"holdfast.toml", "worker.toml", "sysusers.conf"} <= set(installed)
    for name in installed:
        assert (DEPLOY / "systemd" / name).exists(), name
    assert f"chown {user} deploy/secrets/pgpass" in PAGE
    for heading in re.findall(r"\]\(#([\w.-]+)\)", PAGE):
        assert heading in {
            re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-")
            for line in re.findall(r"^#+ (.*)", PAGE, re.MULTILINE)
        }
