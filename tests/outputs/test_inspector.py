"""The inspector: listing what was promised, resuming exactly what is missing, and reusing what is there."""

from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Corrupt, Invalid, NotFound, Unavailable
from holdfast.core.manifest import encode_task
from holdfast.core.outputs import File, Output, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import inspector as inspecting
from holdfast.outputs import reports
from holdfast.outputs.inspector import LocalInspector
from holdfast.ports import OutputPage
from tests.outputs.outputs_world import MACHINE, OutputsWorld


def names(page: OutputPage) -> list[str]:
    return [output.name for output in page.outputs]


async def listed(inspector: LocalInspector, limit: int, *, missing: bool = False) -> list[str]:
    """The names on all pages, one after the other."""
    return [name for page in await pages(inspector, limit, missing=missing) for name in page]


async def pages(inspector: LocalInspector, limit: int, *, missing: bool = False) -> list[list[str]]:
    """The names on every page, following the cursors."""
    found: list[list[str]] = []
    after = None
    while True:
        page = await inspector.list_outputs("job-1", missing=missing, after=after, limit=limit)
        found.append(names(page))
        after = page.next
        if after is None:
            return found


async def test_before_anybody_has_looked_the_promise_is_listed(world: OutputsWorld) -> None:
    tasks = world.tasks()
    manifest = await world.promise(tasks)
    await world.start(replace(manifest, files=(File("log.txt"),), names=("model.pt",)))
    inspector = world.inspector()

    page = await inspector.list_outputs("job-1")

    expected = ["log.txt", "model.pt", *(task.name for task in tasks)]
    assert not page.checked
    assert names(page) == expected
    assert await listed(inspector, 3) == expected


async def test_pages_of_a_report_follow_one_another(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "PART_ROWS", 4)
    tasks = world.tasks(sets=4)
    there = [task for n, task in enumerate(tasks) if n % 3 == 1]
    await world.validator().validate(await world.done(tasks, there))
    inspector = world.inspector()
    lost = [task.name for n, task in enumerate(tasks) if n % 3 != 1]

    assert await pages(inspector, 1000) == [[task.name for task in tasks]]
    for limit in (1, 3, 5):
        each = await pages(inspector, limit)
        assert await listed(inspector, limit) == [task.name for task in tasks]
        assert {len(page) for page in each[:-1]} == {limit}
        assert await listed(inspector, limit, missing=True) == lost
    page = await inspector.list_outputs("job-1", missing=True, after="7", limit=2)
    assert names(page) == [tasks[8].name, tasks[9].name]
    assert page.checked


async def test_a_report_of_many_outputs_is_read_part_by_part(world: OutputsWorld) -> None:
    rows = [Output(name=f"o-{n}", missing="no" if n % 2 else None) for n in range(10_000)]
    report = reports.Report(world.outputs, "job-1")
    for start in range(0, len(rows), 512):
        await report.add(rows[start : start + 512])
    path = await report.close()

    read = [row async for row in reports.read_rows(world.outputs, path, start=4095)]
    asked: list[str] = []
    real = world.outputs.get

    async def get(path: str) -> bytes | None:
        asked.append(path)
        return await real(path)

    world.outputs.get = get  # type: ignore[method-assign]
    lacks = [row async for row in reports.read_missing(world.outputs, path, start=9000)]

    assert [(row.place, row.output) for row in read] == list(enumerate(rows))[4095:]
    assert [row.place for row in lacks] == list(range(9001, 10_000, 2))
    assert len(asked) == 2  # the index, and the one part that has them
    parts = [path async for path, _ in world.outputs.list("reports/job-1")]
    assert len(parts) == 3 + 2 + 1


async def test_whoever_sees_the_same_writes_the_same_report(world: OutputsWorld) -> None:
    written = []
    for rows in (["a", "b"], ["a", "b"], ["a", "c"]):
        report = reports.Report(world.outputs, "job-1")
        await report.add([Output(name=name) for name in rows])
        written.append(await report.close())

    assert written[0] == written[1] != written[2]


async def test_a_report_that_is_gone_or_damaged_says_so(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "REVALIDATED_MAX", 0)

    tasks = world.tasks()
    job = await world.validator().validate(await world.done(tasks, tasks[:3]))
    assert job.found is not None
    assert job.found.report is not None
    inspector = world.inspector()

    await world.outputs.put(job.found.report, b"{}")
    with pytest.raises(Corrupt):
        await inspector.list_outputs("job-1")
    await world.outputs.delete(job.found.report)
    with pytest.raises(NotFound):
        await inspector.resume("job-1", actor="user:ana", dry_run=True)
    await inspector.validate("job-1", actor="user:ana", force=True)

    plan = await inspector.resume("job-1", actor="user:ana", dry_run=True)
    assert plan.missing == 5


async def test_the_evidence_for_named_outputs_is_in_the_event(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    job = await world.finish(await world.start(world.files("a", "b")))
    await world.validator().validate(job)
    without_store = LocalInspector(world.registry, None, machine=None, name="i-2")

    page = await without_store.list_outputs("job-1")
    lacking = await without_store.list_outputs("job-1", missing=True)

    assert [(one.name, one.size, one.missing) for one in page.outputs] == [
        ("a", 1, None),
        ("b", None, "not there"),
    ]
    assert page.outputs[0].sha256 == sha256(b"a").hexdigest()
    assert names(lacking) == ["b"]
    last = (await world.registry.history("job-1"))[-1]
    assert last.attributes["found"] == {"verified": 1, "missing": 1, "names": ["b"]}


async def test_evidence_with_long_names_still_fits_into_the_event(world: OutputsWorld) -> None:
    deep = world.folder / "/".join(["f" * 200] * 5)
    deep.mkdir(parents=True)
    files = [f"{n:03d}{'x' * 156}" for n in range(100)]
    for name in files[:50]:
        (deep / name).write_bytes(b"x")
    grant = await world.start(world.files(*files))

    judged = await world.validator().validate(await world.finish(grant, where=f"{MACHINE}:{deep}"))

    assert judged.found is not None
    assert (judged.found.verified, judged.found.missing) == (50, 50)
    page = await world.inspector().list_outputs("job-1")
    assert names(page) == files
    assert [one.missing is None for one in page.outputs] == [True] * 50 + [False] * 50
    assert [one.size for one in page.outputs] == [1] * 50 + [None] * 50
    made = await world.inspector().resume("job-1", actor="user:ana")
    assert made.job is not None
    assert made.job.spec.outputs is not None
    assert [file.path for file in made.job.spec.outputs.files] == files[50:]


async def test_what_the_callers_own_validator_found_is_listed(world: OutputsWorld) -> None:
    await world.world.enqueue("job-1", spec=Spec(promised_outputs=2))
    await world.finish(await world.registry.acquire("job-1", owner="worker-7"))
    assert names(await world.inspector().list_outputs("job-1")) == []
    evidence = [Output(name="x"), Output(name="y", missing="no such row")]
    await world.registry.complete_validation(
        "job-1", ValidationResult(verified=1, missing=1), actor="validator:own", evidence=evidence
    )

    page = await world.inspector().list_outputs("job-1")

    assert (page.outputs, page.checked) == (tuple(evidence), True)
    with pytest.raises(Conflict, match="not resumable"):
        await world.inspector().resume("job-1", actor="user:ana")


async def test_a_verdict_without_evidence_is_not_resumed_blindly(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "REVALIDATED_MAX", 0)

    tasks = world.tasks()
    await world.done(tasks, tasks[:3])
    await world.registry.complete_validation(
        "job-1", ValidationResult(verified=3, missing=5), actor="validator:odd"
    )
    inspector = world.inspector()

    assert not (await inspector.list_outputs("job-1")).checked
    with pytest.raises(Conflict, match="validate --force"):
        await inspector.resume("job-1", actor="user:ana")
    monkeypatch.undo()

    assert (await inspector.resume("job-1", actor="user:ana")).missing == 5


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "٣", "9" * 13])
async def test_a_cursor_that_nobody_gave_is_refused(world: OutputsWorld, after: str) -> None:
    await world.start(world.files("a"))

    with pytest.raises(Invalid, match="not a cursor"):
        await world.inspector().list_outputs("job-1", after=after)


@pytest.mark.parametrize("limit", [0, 1001])
async def test_a_page_has_a_sane_length(world: OutputsWorld, limit: int) -> None:
    await world.start(world.files("a"))

    with pytest.raises(Invalid, match="A page has"):
        await world.inspector().list_outputs("job-1", limit=limit)


async def test_to_ask_for_a_validation_where_nothing_is_seen_tells_why(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    await world.done(tasks, tasks)
    without_store = LocalInspector(world.registry, None, machine=MACHINE, name="i-2")

    first = await without_store.validate("job-1", actor="user:ana", force=True)
    again = await without_store.validate("job-1", actor="user:ana", force=True)

    assert first.state is State.VALIDATING
    for job in (first, again, await world.registry.status("job-1")):
        assert job.check is not None
        assert world.outputs.store_id in (job.check.reason or "")
        assert job.check.tries == 1


async def test_a_job_that_is_not_to_be_judged_stays_as_it_is(world: OutputsWorld) -> None:
    grant = await world.start(world.files("a"))
    inspector = world.inspector()

    running = await inspector.validate("job-1", actor="user:ana", force=True)
    (world.folder / "a").write_bytes(b"a")
    await world.validator().validate(await world.finish(grant))
    ended = await inspector.validate("job-1", actor="user:ana", force=True)

    assert running.state is State.ASSIGNED
    assert ended == await world.registry.status("job-1")
    assert ended.state is State.SUCCEEDED


async def test_one_resume_id_makes_one_job(world: OutputsWorld) -> None:
    tasks = world.tasks()
    await world.validator().validate(await world.done(tasks, tasks[:3]))
    inspector = world.inspector()

    one = await inspector.resume("job-1", actor="user:ana", resume_id="r-1")
    two = await inspector.resume("job-1", actor="user:ana", resume_id="r-1")
    same = await inspector.resume("job-1", actor="user:ana", resume_id="r-2")
    three = await inspector.resume("job-1", actor="user:ana", resume_id="r-2", again=True)

    assert one == two
    assert same == replace(one, earlier=True)
    assert one.job is not None
    assert three.job is not None
    assert three.job.job_id != one.job.job_id
    assert three.job.spec.outputs is not None
    assert three.job.spec.outputs.resume_attempt == 2


async def test_a_damaged_manifest_is_not_resumed(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.validator().validate(await world.done(tasks, tasks[:3]))
    assert job.spec.outputs is not None
    path = f"manifests/{job.spec.outputs.manifest}.jsonl"
    whole = await world.outputs.get(path)
    assert whole is not None
    await world.outputs.put(path, whole.replace(b'"beta":0.1', b'"beta":0.7'))

    with pytest.raises(Corrupt):
        await world.inspector().resume("job-1", actor="user:ana")

    assert sum((await world.registry.counts()).values()) == 1


async def test_a_manifest_that_is_kept_is_counted_and_checked(world: OutputsWorld) -> None:
    tasks = world.tasks()

    async def lines(*more: bytes) -> AsyncIterator[bytes]:
        for task in tasks:
            yield encode_task(task)
        for line in more:
            yield line

    _, entries = await world.inspector().store_manifest(lines())

    assert entries == 8
    with pytest.raises(Invalid, match="Line 9"):
        await world.inspector().store_manifest(lines(b"nonsense\n"))
    with pytest.raises(Unavailable, match="no output store"):
        await LocalInspector(world.registry, None, machine=None, name="i").store_manifest(lines())
