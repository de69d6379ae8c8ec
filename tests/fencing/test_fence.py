"""Fences and guards by themselves: what is said, what is seen, what is refused."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.core.limits import NUMBER_MAX
from holdfast.fencing import HEADER, Fence, Guard, MemoryMarks, parse
from holdfast.fencing.fence import Mark, admit

IDS = st.from_regex(r"[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,40}", fullmatch=True)
FENCES = st.builds(
    Fence,
    resource=IDS,
    token=st.integers(1, NUMBER_MAX),
    job_id=IDS,
    lock=st.none() | IDS,
)


def fence(token: int, resource: str = "account-17", lock: str | None = "account-17") -> Fence:
    return Fence(resource=resource, token=token, job_id="job-1", lock=lock)


@given(FENCES)
def test_a_header_says_the_whole_fence(one: Fence) -> None:
    assert parse(one.header) == one
    assert one.headers == {HEADER: one.header}


def test_a_header_is_read_as_others_may_write_it() -> None:
    assert parse(' 7 ; job="j-1" ;  resource="r" ') == Fence(resource="r", token=7, job_id="j-1")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "7",
        '7;resource="r"',
        '7;job="j"',
        '0;resource="r";job="j"',
        '-7;resource="r";job="j"',
        '7.5;resource="r";job="j"',
        '99999999999999999999;resource="r";job="j"',
        f'{NUMBER_MAX + 1};resource="r";job="j"',
        '7;resource="";job="j"',
        '7;resource="a b";job="j"',
        '7;resource="r";job="j";job="k"',
        '7;resource="r";job="j";owner="w"',
        '7;resource="r";job="j";lock=""',
        '7;resource="r";job="j"\n',
        '7;resource="r\n";job="j"',
        '7\r;resource="r"\n;job="j"',
        '\xa07;resource="r";job="j"',
        '\u0667;resource="r";job="j"',
        '7;resource=r;job="j"',
        "seven" * 100_000,
    ],
)
def test_what_is_no_fence_is_refused(header: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(header)
    assert len(refused.value.message) < 500


def test_tokens_of_a_lock_and_of_a_job_have_different_sources() -> None:
    assert fence(1).source == "lock:account-17"
    assert fence(1, lock=None).source == "job:job-1"


def test_a_mark_rises_and_never_falls() -> None:
    mark = admit(fence(41), None)
    assert admit(fence(41), mark) == mark
    assert admit(fence(43), mark) == Mark("lock:account-17", 43)
    with pytest.raises(Fenced, match="Token 40 is stale: account-17 has seen token 41"):
        admit(fence(40), mark)


def test_tokens_of_two_sources_are_never_compared() -> None:
    mark = admit(fence(1), None)
    with pytest.raises(Conflict, match=r"lock:account-17.*job:job-1.*one lock"):
        admit(fence(99, lock=None), mark)


async def test_a_guard_remembers_the_highest_token_of_each_resource() -> None:
    guard = Guard()
    await guard.check(fence(42))
    await guard.check(fence(1, "account-18"))
    await guard.check(fence(43))
    for _ in range(2):  # a refusal changes nothing
        with pytest.raises(Fenced):
            await guard.check(fence(42))
    await guard.check(fence(43))
    await guard.check(fence(2, "account-18"))


@pytest.mark.parametrize(
    "wrong",
    [fence(0), fence(-1), fence(NUMBER_MAX + 1), fence(1, ""), fence(1, "a b"), fence(True)],
)
def test_a_guard_refuses_what_is_no_fence(wrong: Fence) -> None:
    with pytest.raises(Invalid):
        asyncio.run(Guard().check(wrong))


async def test_a_guards_memory_has_an_end_and_forgets_the_oldest() -> None:
    marks = MemoryMarks(limit=2)
    for name in ("a", "b", "a", "c"):
        await marks.admit(fence(5, name))
    await marks.admit(fence(4, "b"))  # forgotten: it was the oldest
    with pytest.raises(Fenced):
        await marks.admit(fence(4, "c"))
    with pytest.raises(Invalid):
        MemoryMarks(limit=0)
