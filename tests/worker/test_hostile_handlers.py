"""Handlers that misbehave: each gets a clear ending, and the worker goes on."""

from collections.abc import Iterator

import pytest

from holdfast.core.retry import Retry
from holdfast.core.state import State
from tests.worker.function_workers import FunctionWorkers, open_workers

APP = """
from datetime import timedelta

@app.job
def good(): return "good"

@app.job
def evil(ctx: holdfast.Context, what: str):
    return EVILS[what](ctx)

@app.job
async def evil_async(ctx: holdfast.Context, what: str):
    result = EVILS[what](ctx)
    return await result if asyncio.iscoroutine(result) else result

class Mute(Exception):
    def __str__(self): raise RuntimeError("no words")

class Base(BaseException): pass

def throw(error):
    raise error

def spill():
    sys.stdout.write("x" * 3_000_000 + chr(10))
    return "spilled"

def close_stdout():
    sys.stdout.close()
    print("still heard")

def replace_stdout():
    kept, sys.stdout = sys.stdout, open(os.devnull, "w")
    print("unheard")
    sys.stdout = kept
    print("heard again")

def fork_and_exit():
    if not (pid := os.fork()): os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def fork_and_go_on():
    pid = os.fork()
    return "parent" if pid else "child"

def outlive():
    threading.Thread(target=lambda: (time.sleep(0.2), print("late")), daemon=True).start()
    return "outlived"

def inner_loop(ctx):
    async def main():
        await ctx.checkpoint_async({"n": 1})
        return ctx.last_checkpoint()
    return asyncio.run(main())

def recurse():
    deep = []
    for _ in range(10_000): deep = [deep]
    return deep

EVILS = {
    "nul": lambda ctx: throw(ValueError("a" + chr(0) + "b")),
    "surrogate": lambda ctx: throw(ValueError(chr(0xd800))),
    "huge": lambda ctx: throw(ValueError("x" * 5_000_000)),
    "escapes": lambda ctx: throw(ValueError(chr(27) + "[2J" + chr(27) * 16_000)),
    "smiles": lambda ctx: throw(ValueError(chr(0x1f600) * 16_000)),
    "mute": lambda ctx: throw(Mute()),
    "base": lambda ctx: throw(Base("base")),
    "keyboard": lambda ctx: throw(KeyboardInterrupt()),
    "stop_iteration": lambda ctx: throw(StopIteration(3)),
    "generator_exit": lambda ctx: throw(GeneratorExit()),
    "asyncio_cancelled": lambda ctx: throw(asyncio.CancelledError()),
    "group": lambda ctx: throw(ExceptionGroup("many", [ValueError("one"), TypeError("two")])),
    "exit_words": lambda ctx: sys.exit("bye" + chr(0xd800)),
    "snooze_negative": lambda ctx: throw(holdfast.Snooze(timedelta(days=-1))),
    "snooze_eons": lambda ctx: throw(holdfast.Snooze(timedelta.max)),
    "snooze_nan": lambda ctx: throw(holdfast.Snooze(float("nan"))),
    "not_json": lambda ctx: object(),
    "too_large": lambda ctx: "x" * 300_000,
    "too_deep": lambda ctx: recurse(),
    "surrogate_result": lambda ctx: chr(0xd800),
    "checkpoint_large": lambda ctx: ctx.checkpoint("x" * 300_000),
    "checkpoint_object": lambda ctx: ctx.checkpoint(object()),
    "emit_name": lambda ctx: ctx.emit("bad name" + chr(10)),
    "emit_large": lambda ctx: ctx.emit("large", text="x" * 100_000),
    "emit_object": lambda ctx: ctx.emit("thing", thing=object()),
    "emit_number": lambda ctx: ctx.emit("number", number=2**70),
    "emit_surrogate": lambda ctx: ctx.emit("text", text=chr(0xd800)),
    "progress_text": lambda ctx: ctx.progress("many"),
    "progress_float": lambda ctx: ctx.progress(1.5, 2.5),
    "progress_negative": lambda ctx: ctx.progress(-1, -2),
    "progress_huge": lambda ctx: ctx.progress(2**70),
    "progress_words": lambda ctx: ctx.progress(1, 2, chr(0xd800) + chr(0) + "x" * 100_000),
    "progress_object": lambda ctx: ctx.progress(1, 2, object()),
    "follow_nothing": lambda ctx: ctx.follow_up("nothing"),
    "follow_id": lambda ctx: ctx.follow_up(good.configure(job_id="taken").call()),
    "big_number": lambda ctx: 2**70,
    "spill": lambda ctx: spill(),
    "binary": lambda ctx: ctx.write("stdout", bytes(range(256)) * 1000),
    "write_text": lambda ctx: ctx.write("stdout", "text"),
    "write_stream": lambda ctx: ctx.write("nonsense" + chr(0xd800), b"data"),
    "close_stdout": lambda ctx: close_stdout(),
    "replace_stdout": lambda ctx: replace_stdout(),
    "fork_and_exit": lambda ctx: fork_and_exit(),
    "fork_and_go_on": lambda ctx: fork_and_go_on(),
    "outlive": lambda ctx: outlive(),
    "inner_loop": lambda ctx: inner_loop(ctx),
    "inner_run": lambda ctx: asyncio.run(asyncio.sleep(0, "ran")),
    "log_badly": lambda ctx: ctx.log.info("%d %d", "x"),
    "log_object": lambda ctx: ctx.log.info(Mute()),
    "close_link": lambda ctx: os.close(3),
    "cancel_itself": lambda ctx: throw(holdfast.Cancelled(chr(0xd800))),
    "enqueue": lambda ctx: good.enqueue().job_id,
}
"""
ONCE = Retry(max_failures=1, max_crashes=1)
KINDS = ("evil", "evil_async")
TWO_LOOPS = "cannot be called from a running event loop"
IN_COROUTINE = "In a coroutine, write: await ctx.checkpoint_async(state)"
FAILURES = {
    "nul": "a?b",
    "surrogate": "?",
    "huge": "[shortened]",
    "escapes": "\x1b[2J",
    "smiles": "\U0001f600",
    "mute": "Mute, whose message cannot be shown",
    "base": "base",
    "keyboard": "KeyboardInterrupt",
    "stop_iteration": "StopIteration",
    "generator_exit": "GeneratorExit",
    "asyncio_cancelled": "CancelledError",
    "group": "many (2 sub-exceptions)",
    "exit_words": "The handler called exit(",
    "snooze_negative": "A snooze is from 0 to 366 days",
    "snooze_eons": "A snooze is from 0 to 366 days",
    "snooze_nan": "Snooze: nan is not a duration",
    "checkpoint_large": ("A checkpoint has 300,002 bytes", IN_COROUTINE),
    "checkpoint_object": ("A checkpoint cannot be written as JSON", IN_COROUTINE),
    "emit_name": "The name of an event 'bad name",
    "emit_large": "The event large has 100,011 bytes",
    "emit_object": "The event thing cannot be written as JSON",
    "emit_number": "a number of more than 64 bits",
    "emit_surrogate": "The event text cannot be written as JSON",
    "progress_text": "Progress is counted in whole numbers",
    "progress_float": "Progress is counted in whole numbers",
    "progress_negative": "Progress is counted in whole numbers",
    "progress_huge": "Progress is counted in whole numbers",
    "follow_nothing": "follow_up takes a call",
    "follow_id": "A follow-up has an id of its own",
    "write_text": "Output is bytes, not str",
    "write_stream": "The name of a stream",
    "close_link": "The process that ran it died",
}
RESULTS: dict[str, object] = {
    "progress_words": None,
    "progress_object": None,
    "big_number": 2**70,
    "fork_and_exit": 7,
    "fork_and_go_on": "parent",
    "outlive": "outlived",
    "log_badly": None,
    "log_object": None,
}
LOST = {
    "not_json": "<object object at",
    "too_deep": "<its repr raised RecursionError>",
    "surrogate_result": r"'\ud800'",
}
OUTPUTS = {
    "spill": b"x" * 3_000_000 + b"\n",
    "binary": bytes(range(256)) * 1000,
    "close_stdout": b"still heard\n",
    "replace_stdout": b"heard again\n",
}


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionWorkers]:
    with open_workers("sqlite", tmp_path_factory.mktemp("hostile"), APP) as workers:
        workers.start("w-1")
        yield workers


@pytest.mark.parametrize("what", FAILURES)
def test_what_a_handler_does_wrong_is_said_and_others_go_on(workers: FunctionWorkers, what: str) -> None:
    words = FAILURES[what]
    for kind, expected in zip(KINDS, (words, words) if isinstance(words, str) else words, strict=True):
        job = workers.ended(workers.enqueue(kind, {"what": what}, retry=ONCE))

        assert job.state is State.DEAD_LETTERED
        assert expected in (job.reason or "")
        workers.succeeded(workers.enqueue("good"))


@pytest.mark.parametrize("what", RESULTS)
def test_odd_handlers_succeed_and_others_go_on(workers: FunctionWorkers, what: str) -> None:
    for kind in KINDS:
        job = workers.succeeded(workers.enqueue(kind, {"what": what}, retry=ONCE))

        assert job.result == RESULTS[what]
        workers.succeeded(workers.enqueue("good"))


@pytest.mark.parametrize("what", LOST)
def test_a_result_that_cannot_be_stored_is_described(workers: FunctionWorkers, what: str) -> None:
    for kind in KINDS:
        job = workers.succeeded(workers.enqueue(kind, {"what": what}, retry=ONCE))

        assert isinstance(job.result, dict)
        assert job.result["holdfast:unencodable"]["repr"].startswith(LOST[what])
        workers.succeeded(workers.enqueue("good"))


def test_a_result_that_is_large_is_in_the_output_store(workers: FunctionWorkers) -> None:
    for kind in KINDS:
        job = workers.succeeded(workers.enqueue(kind, {"what": "too_large"}, retry=ONCE))

        assert isinstance(job.result, dict)
        path = workers.folder / "jobs.outputs" / job.result["holdfast:stored"]["path"]
        assert path.read_bytes() == b'"%s"' % (b"x" * 300_000)


@pytest.mark.parametrize("what", OUTPUTS)
def test_what_is_written_is_kept_whatever_it_is(workers: FunctionWorkers, what: str) -> None:
    for kind in KINDS:
        job_id = workers.enqueue(kind, {"what": what}, retry=ONCE)
        workers.succeeded(job_id)

        assert workers.output(job_id) == OUTPUTS[what]


def test_a_plain_function_may_run_a_loop_of_its_own_and_a_coroutine_may_not(
    workers: FunctionWorkers,
) -> None:
    for what, result in (("inner_loop", {"n": 1}), ("inner_run", "ran")):
        plain = workers.succeeded(workers.enqueue("evil", {"what": what}))
        coroutine = workers.ended(workers.enqueue("evil_async", {"what": what}, retry=ONCE))

        assert plain.result == result
        assert TWO_LOOPS in (coroutine.reason or "")


def test_a_handler_may_say_that_it_is_cancelled_in_odd_words(workers: FunctionWorkers) -> None:
    job = workers.ended(workers.enqueue("evil", {"what": "cancel_itself"}))

    assert (job.state, job.reason) == (State.CANCELLED, "?")


def test_a_handler_may_enqueue(workers: FunctionWorkers) -> None:
    for kind in KINDS:
        job = workers.succeeded(workers.enqueue(kind, {"what": "enqueue"}))

        assert workers.succeeded(str(job.result)).result == "good"


def test_after_all_that_record_and_log_agree(workers: FunctionWorkers) -> None:
    workers.assert_consistent()
