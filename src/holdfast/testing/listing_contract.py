"""The contract of a store, listings: what a page contains, what it costs, and who may see it."""

import msgspec
import pytest

from holdfast.core.access import Principal, Scope
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobPage, JobRequest
from holdfast.stores import filters
from holdfast.testing.world import PERMANENT, Opener, World, in_world

_LARGE = msgspec.Raw(b'"' + b"x" * 200_000 + b'"')


class ListingContract:
    open: Opener

    @in_world
    async def test_pages_show_every_job_once_while_others_arrive(self, world: World) -> None:
        for n in range(7):
            await world.enqueue(f"job-{n}")
        seen: list[str] = []
        cursor = None
        for turn in range(10):
            page = await world.store.list_jobs(JobFilter(), after=cursor, limit=3)
            seen += [job.job_id for job in page.jobs]
            await world.enqueue(f"late-{turn}") if turn < 2 else None
            cursor = page.next
            if cursor is None:
                break

        assert seen == [*(f"job-{n}" for n in range(7)), "late-0", "late-1"]

    @in_world
    async def test_listing_filters_by_queue_kind_state_owner_and_label(self, world: World) -> None:
        await world.enqueue("a")
        await world.enqueue("b", queue="images", labels={"team": "x"})
        await world.enqueue("c", kind="resize")
        await world.claim(owner="worker-9")

        async def ids(**which: object) -> list[str]:
            page = await world.store.list_jobs(JobFilter(**which), after=None, limit=10)  # type: ignore[arg-type]
            return [job.job_id for job in page.jobs]

        assert await ids(queue="images") == ["b"]
        assert await ids(kind="resize") == ["c"]
        assert await ids(states=(State.ASSIGNED,)) == ["a"]
        assert await ids(owner="worker-9") == ["a"]
        assert await ids(labels={"team": "x"}) == ["b"]
        assert await world.store.counts() == {State.QUEUED: 2, State.ASSIGNED: 1}
        assert await world.store.counts("images") == {State.QUEUED: 1}

    @pytest.mark.parametrize("newest", [False, True])
    @in_world
    async def test_jobs_are_found_by_their_arguments_in_bounded_pages(
        self, world: World, newest: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(filters, "LIST_ROWS_MAX", 3)
        for n in range(8):
            payload = msgspec.Raw(msgspec.json.encode({"seed": n % 4 if n < 6 else str(n % 4), "alpha": 0.3}))
            await world.enqueue(f"job-{n}", kind="fit", payload=payload)

        async def ids(**arguments: str) -> list[str]:
            found = _ids(await _walk(world, JobFilter(arguments=arguments), newest=newest))
            return found[::-1] if newest else found

        assert await ids(seed="3") == ["job-3", "job-7"]
        assert await ids(seed="3", alpha="0.3") == ["job-3", "job-7"]
        assert await ids(seed="3", alpha="0.4") == []
        assert await ids(beta="3") == []
        pages = await _walk(world, JobFilter(arguments={"seed": "9"}), newest=newest)
        assert [len(page.jobs) for page in pages] == [0, 0, 0]

    @in_world
    async def test_arguments_find_only_what_the_viewer_may_read(self, world: World) -> None:
        payload = msgspec.Raw(b'{"seed": 7}')
        await _submit(world, "mine", "key:a", kind="fit", payload=payload)
        await _submit(world, "theirs", "key:b", kind="fit", payload=payload)

        async def ids(*scopes: Scope) -> list[str]:
            viewer = Principal("a", frozenset(scopes), key_id="0" * 12)
            return _ids(await _walk(world, JobFilter(viewer=viewer, arguments={"seed": "7"})))

        assert await ids(Scope.OBSERVE) == []
        assert await ids(Scope.WORK) == []
        assert await ids(Scope.OBSERVE, Scope.SUBMIT) == ["mine"]
        assert await ids(Scope.OBSERVE, Scope.DATA) == ["mine", "theirs"]

    @in_world
    async def test_the_newest_jobs_can_be_listed_first(self, world: World) -> None:
        for n in range(5):
            await world.enqueue(f"job-{n}")

        first = await world.store.list_jobs(JobFilter(), after=None, limit=3, newest=True)
        rest = await world.store.list_jobs(JobFilter(), after=first.next, limit=3, newest=True)

        seen = [job.job_id for job in (*first.jobs, *rest.jobs)]
        assert seen == ["job-4", "job-3", "job-2", "job-1", "job-0"]
        assert rest.next is None

    @pytest.mark.parametrize(("newest", "letter"), [(False, "x"), (True, "x"), (False, "é")])
    @in_world
    async def test_a_page_is_bounded_by_bytes(self, world: World, newest: bool, letter: str) -> None:
        text = letter * (200_000 // len(letter.encode()))
        payload = msgspec.Raw(msgspec.json.encode(text))

        made = [(await world.enqueue(f"job-{n}", payload=payload)).job_id for n in range(7)]

        pages = await _walk(world, JobFilter(), newest=newest)

        assert [len(page.jobs) for page in pages] == [5, 2]  # of 200 kB each, in 1 MiB
        assert _ids(pages) == (made[::-1] if newest else made)

    @in_world
    async def test_a_job_larger_than_a_page_has_one_of_its_own(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(filters, "LIST_BYTES_MAX", 10)

        made = [(await world.enqueue(f"job-{n}")).job_id for n in range(3)]

        pages = await _walk(world, JobFilter())

        assert [len(page.jobs) for page in pages] == [1, 1, 1]
        assert _ids(pages) == made

    @pytest.mark.parametrize("newest", [False, True])
    @in_world
    async def test_a_page_looks_at_so_many_jobs_and_no_more(
        self, world: World, newest: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(filters, "LIST_ROWS_MAX", 4)

        for n in range(10):
            await world.enqueue(f"job-{n}", labels={"team": "x"} if n in (0, 9) else {})

        pages = await _walk(world, JobFilter(labels={"team": "x"}), newest=newest)
        none = await _walk(world, JobFilter(labels={"team": "y"}), newest=newest)

        assert [len(page.jobs) for page in pages] == [1, 0, 1]
        assert [len(page.jobs) for page in none] == [0, 0, 0]

    @in_world
    async def test_what_is_read_and_not_shown_is_bounded_too(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(filters, "LIST_READ_BYTES_MAX", 450_000)

        for n in range(5):
            await _submit(world, f"job-{n}", "key:b", payload=_LARGE)
        await _submit(world, "mine", "key:a")

        pages = await _walk(world, JobFilter(viewer=_key("a", Scope.SUBMIT)))

        assert _ids(pages) == ["mine"]
        assert [len(page.jobs) for page in pages] == [0, 0, 1]

    @pytest.mark.parametrize("newest", [False, True])
    @in_world
    async def test_states_are_found_among_many_others(
        self, world: World, newest: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(filters, "LIST_ROWS_MAX", 3)

        for n in range(12):
            await world.enqueue(f"job-{n:02}", queue="q" if n % 4 == 1 else "default")
            if n % 4 == 1:
                await world.registry.cancel(f"job-{n:02}", actor="user:ana")
            elif n % 4 == 3:
                [grant] = await world.registry.claim(["default"], owner="w")
                await world.registry.complete(grant, PERMANENT)

        async def ids(*states: State, queue: str | None = None) -> list[str]:
            pages = await _walk(world, JobFilter(states=states, queue=queue), newest=newest)
            found = _ids(pages)
            return found[::-1] if newest else found

        assert await ids(State.CANCELLED) == ["job-01", "job-05", "job-09"]
        assert await ids(State.FAILED) == ["job-00", "job-02", "job-03"]
        rare = ["job-00", "job-01", "job-02", "job-03", "job-05", "job-09"]
        assert await ids(State.FAILED, State.CANCELLED) == rare
        assert await ids(State.FAILED, State.CANCELLED, queue="q") == [
            "job-01",
            "job-05",
            "job-09",
        ]
        queued = ["job-04", "job-06", "job-07", "job-08", "job-10", "job-11"]
        assert await ids(State.QUEUED, State.TIMEOUT) == queued
        assert await ids(State.VALIDATING) == []

    @pytest.mark.parametrize("newest", [False, True])
    @in_world
    async def test_a_page_holds_only_what_its_viewer_may_know_of(self, world: World, newest: bool) -> None:
        for n in range(9):
            queue = ("a1", "b1", "a_2")[n % 3]
            region = "eu" if n in (0, 1) else "us" if n == 3 else None
            await _submit(world, f"job-{n}", "key:a", queue=queue, region=region)

        async def pages(viewer: Principal, queue: str | None = None) -> list[list[str]]:
            which = JobFilter(viewer=viewer, queue=queue)
            found = await _walk(world, which, limit=2, newest=newest)
            return [[job.job_id for job in page.jobs] for page in found]

        def ordered(*ids: str) -> list[list[str]]:
            listed = ids[::-1] if newest else ids
            return [list(listed[n : n + 2]) for n in range(0, len(listed), 2)]

        observer = _key("o", Scope.OBSERVE, "a*")
        seen = ("job-0", "job-2", "job-3", "job-5", "job-6", "job-8")
        assert await pages(observer) == ordered(*seen)
        assert await pages(observer, queue="a1") == ordered("job-0", "job-3", "job-6")
        assert await pages(observer, queue="b1") == [[]]
        assert await pages(_key("o", Scope.OBSERVE, "a_*")) == ordered("job-2", "job-5", "job-8")
        assert await pages(_key("o", Scope.OBSERVE, "*1", "us"), queue="a1") == ordered("job-3", "job-6")
        assert await pages(_key("a", Scope.SUBMIT, "b*")) == ordered("job-1", "job-4", "job-7")
        assert await pages(_key("b", Scope.SUBMIT, "b*")) == [[]]
        assert await pages(_key("k", Scope.KEYS)) == [[]]

    @in_world
    async def test_a_worker_is_shown_what_is_unfinished(self, world: World) -> None:
        await world.enqueue("done")
        await world.registry.complete(await world.claim(), Success())
        await world.enqueue("to-do")

        pages = await _walk(world, JobFilter(viewer=_key("w", Scope.WORK)), limit=1)

        assert [[job.job_id for job in page.jobs] for page in pages] == [["to-do"]]


def _key(name: str, scope: Scope, queues: str = "*", *regions: str) -> Principal:
    return Principal(name, frozenset({scope}), (queues,), regions, key_id="0" * 12)


async def _submit(world: World, job_id: str, submitter: str, **more: object) -> None:
    request = JobRequest(spec=msgspec.structs.replace(Spec(), **more), job_id=job_id, submitted_by=submitter)
    await world.registry.enqueue(request, actor="user:ana")


async def _walk(world: World, which: JobFilter, *, limit: int = 100, newest: bool = False) -> list[JobPage]:
    pages: list[JobPage] = []
    cursor = None
    for _ in range(50):
        pages.append(await world.store.list_jobs(which, after=cursor, limit=limit, newest=newest))
        cursor = pages[-1].next
        if cursor is None:
            return pages
    raise AssertionError("the listing does not end")


def _ids(pages: list[JobPage]) -> list[str]:
    return [job.job_id for page in pages for job in page.jobs]
