"""The app and its decorator: a function becomes a job, or is refused with the reason."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from holdfast import App, Conflict, Context, Invalid, OnExhausted, Retry
from holdfast.core.limits import LEASE_DEFAULT
from holdfast.core.retry import FUNCTION_RETRY
from holdfast.sdk.job_options import DecoratorOptions
from holdfast.sdk.open import DEFAULT_STORE
from tests.sdk.sample_jobs import add, resize

if TYPE_CHECKING:
    from decimal import Context as Elsewhere


@pytest.fixture
def app() -> App:
    return App("memory://")


class Engine:
    """A class that JSON knows nothing of."""


@dataclass
class Picture:
    path: str
    width: int


def stars(*paths: str) -> None: ...


def double_stars(**options: str) -> None: ...


def positional(path: str, /) -> None: ...


def late_context(path: str, ctx: Context) -> None: ...


def bare_context(ctx, path: str) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def of_engine(engine: Engine) -> None: ...


def of_engines(engines: dict[str, list[Engine]]) -> None: ...


def to_engine() -> Engine: ...  # type: ignore[empty-body]


def of_mixture(engine: int | Engine) -> None: ...


def of_elsewhere(value: "Elsewhere") -> None: ...


def yields() -> Iterator[int]:
    yield 1


async def yields_async() -> AsyncIterator[int]:
    yield 1


def undo_other(other: int) -> None: ...


def undo_strictly(first: int, second: int) -> None: ...


def undo(first: int, second: int = 2) -> None: ...


async def undo_with_context(ctx: Context, first: int, second: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (stars, r"stars: a job cannot have the parameter \*paths"),
        (double_stars, r"double_stars: a job cannot have the parameter \*\*options"),
        (positional, "positional: a job cannot have the parameter path"),
        (late_context, "late_context: the context is the first parameter, and ctx is not"),
        (bare_context, "bare_context: ctx has no annotation"),
        (of_engine, "of_engine: the parameter engine has the type Engine, which cannot be read"),
        (of_engines, "of_engines: the parameter engines has the type Engine"),
        (to_engine, "to_engine: what it returns has the type Engine"),
        (of_mixture, "of_mixture: the parameter engine has a type that cannot be read from JSON"),
        (of_elsewhere, "of_elsewhere: its annotations cannot be read: name 'Elsewhere'"),
        (yields, "yields: a job returns one value; this function yields"),
        (yields_async, "yields_async: a job returns one value; this function yields"),
        (lambda path: None, "A lambda has no name"),
        (print, "A job is made from a function, not from <built-in function print>"),
        (Engine, "A job is made from a function, not from <class"),
    ],
)
def test_a_function_that_cannot_be_a_job_is_refused(
    app: App, function: Callable[..., object], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        app.job(function)
    assert app.jobs == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "my queue"}, "add: queue 'my queue' may only contain"),
        ({"queue": 7}, "add: queue: Expected `str`, got `int`"),
        ({"priority": 10}, "add: priority is from 0"),
        ({"lease": 0.1}, "add: A lease lasts from 1 second"),
        ({"lease": "soon"}, r"add: lease: 'soon' is not a duration; write 90 \(seconds\), 500ms, 5m, 1h30m,"),
        ({"lease": float("nan")}, "add: lease: nan is not a duration"),
        ({"timeout": 0}, "add: timeout is longer than nothing"),
        ({"max_failures": 0}, "add: max_failures and max_crashes are from 1"),
        ({"max_failures": "3"}, r"add: max_failures: Expected `int \| null`, got `str`"),
        ({"isolation": "thread"}, "add: isolation: Invalid enum value 'thread'"),
        ({"memory": 10**9}, 'add: memory is the limit of a process: write isolation="process"'),
        ({"memory": 512, "isolation": "process"}, "add: memory is given in bytes, at least"),
        ({"compensate": "undo"}, "add: compensate is a function, not 'undo'"),
        ({"compensate": undo_other}, "add: compensate takes what the handler takes, first, second"),
        ({"compensate": undo_strictly}, "add: compensate needs a default for second"),
        ({"kind": "command"}, "A job cannot be called command"),
        ({"kind": "add:2"}, "a colon separates the name from the version"),
        (
            {"name": "sum"},
            r"a name is of one job: add\.configure\(name=\.\.\.\)\. .* @app\.job\(kind=\.\.\.\)",
        ),
        ({"kind": "a b"}, "The kind of a job 'a b' may only contain"),
        ({"version": 0}, "add: versions are counted from 1"),
        ({"delay": 3}, r"add: delay is an option of one job, not of all: add.configure\(delay="),
        ({"quee": "images"}, "add: there is no option quee. Did you mean queue"),
        (
            {"max_retries": 3},
            r"add: there is no option max_retries. Did you mean max_failures\? There are: compensate, ",
        ),
        ({"labels": {"a": 1}}, "add: labels"),
    ],
)
def test_an_option_that_is_wrong_is_refused(app: App, options: DecoratorOptions, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        app.job(**options)(add)
    assert app.jobs == {}


def test_one_app_has_one_job_of_a_kind(app: App) -> None:
    app.job(add)

    with pytest.raises(Invalid, match="add: this app has a job of that kind already"):
        app.job(add)


def test_versions_of_a_function_are_kinds_of_their_own(app: App) -> None:
    app.job(add)
    app.job(version=2)(add)
    app.job(kind="sum", version=3)(add)

    assert list(app.jobs) == ["add", "add:2", "sum:3"]
    assert app.jobs["add:2"].call(1).kind == "add:2"


def test_options_become_the_spec_of_every_job(app: App) -> None:
    job = app.job(
        queue="images",
        priority=2,
        lease=timedelta(minutes=2),
        timeout=30,
        ttl=3600.5,
        lock="disk",
        region="eu",
        labels={"team": "pictures"},
        retry=Retry(max_failures=9, factor=3),
        max_failures=4,
        max_crashes=2,
        on_exhausted=OnExhausted.FAIL,
    )(add)

    spec = job.call(1).spec

    assert (spec.queue, spec.priority, spec.lock, spec.region) == ("images", 2, "disk", "eu")
    assert spec.lease == timedelta(minutes=2)
    assert spec.timeout == timedelta(seconds=30)
    assert spec.ttl == timedelta(seconds=3600.5)
    assert spec.labels == {"team": "pictures"}
    assert spec.retry == Retry(max_failures=4, max_crashes=2, factor=3, on_exhausted=OnExhausted.FAIL)


def test_durations_are_written_in_python_as_on_the_command_line(app: App) -> None:
    retry = Retry(backoff="5s", backoff_max="PT10M")  # type: ignore[arg-type]  # as in a notebook
    job = app.job(timeout="5m", ttl="1h30m", lease="90", retry=retry)(add)

    spec = job.configure(delay="PT30S").call(1).spec

    assert (spec.timeout, spec.ttl) == (timedelta(minutes=5), timedelta(minutes=90))
    assert (spec.lease, spec.delay) == (timedelta(seconds=90), timedelta(seconds=30))
    assert (spec.retry.backoff, spec.retry.backoff_max) == (timedelta(seconds=5), timedelta(minutes=10))
    with pytest.raises(Invalid, match="sum: retry: backoff: 'soon' is not a duration; write 90"):
        app.job(kind="sum", retry=Retry(backoff="soon"))(add)  # type: ignore[arg-type]


def test_what_is_not_said_has_the_defaults_of_every_job(app: App) -> None:
    spec = app.job(timeout=None, lease=None, retry=None, labels=None)(add).call(1).spec

    assert (spec.queue, spec.priority, spec.timeout) == ("default", 5, None)
    assert spec.lease == LEASE_DEFAULT
    assert spec.retry is FUNCTION_RETRY


def test_a_function_is_tried_for_longer_than_its_registry_would(app: App) -> None:
    plain = app.job(add).call(1).spec.retry
    refined = app.job(kind="thrice", max_failures=3)(add).call(1).spec.retry
    own = app.job(kind="own", retry=Retry())(add).call(1).spec.retry

    assert (plain.max_failures, plain.max_crashes, plain.factor) == (10, 5, 2)
    assert (plain.backoff, plain.backoff_max) == (timedelta(seconds=5), timedelta(minutes=15))
    assert refined == replace(plain, max_failures=3)
    assert (own.max_failures, own.backoff) == (5, timedelta(milliseconds=500))


def test_the_runner_finds_what_it_needs(app: App) -> None:
    shared = app.job(resize)
    alone = app.job(isolation="process", memory=2**30, compensate=undo_with_context)(add)

    assert (shared.function, shared.is_async, shared.takes_context) == (resize, True, True)
    assert (shared.isolation, shared.memory_bytes, shared.compensate) == ("shared", None, None)
    assert shared.result_type == dict[str, int]
    assert (alone.function, alone.is_async, alone.takes_context) == (add, False, False)
    assert (alone.isolation, alone.memory_bytes) == ("process", 2**30)
    hook = alone.compensate
    assert hook is not None
    assert (hook.function, hook.is_async, hook.takes_context) == (undo_with_context, True, True)


def test_a_plain_compensation_takes_no_context(app: App) -> None:
    hook = app.job(compensate=undo)(add).compensate

    assert hook is not None
    assert (hook.is_async, hook.takes_context) == (False, False)


def test_a_job_looks_and_acts_like_its_function(app: App) -> None:
    job = app.job(add)

    assert job(1) == 3
    assert (job.__name__, job.__module__) == ("add", "tests.sdk.sample_jobs")  # type: ignore[attr-defined]
    assert repr(job) == "<job add(first: int, second: int = 2) -> int>"


def test_a_local_function_is_known_by_its_own_name(app: App) -> None:
    def local(first: int) -> None: ...

    assert app.job(local).kind == "local"


def test_annotations_may_be_strings(app: App) -> None:
    def quoted(ctx: "Context", picture: "Picture") -> "list[int]":
        return [picture.width]

    job = app.job(kind="quoted")(quoted)

    assert job.takes_context
    assert job.result_type == list[int]
    assert job.arguments.decode(job.call(Picture("a", 3)).payload) == {"picture": Picture("a", 3)}


def test_a_context_that_is_imported_for_the_type_checker_only_is_found() -> None:
    scope: dict[str, Any] = {"__name__": "somewhere"}
    exec("def quoted(ctx: 'Context', path: 'str') -> 'None': ...", scope)

    assert App("memory://").job(scope["quoted"]).takes_context


def test_a_class_of_the_same_name_is_not_taken_for_the_context() -> None:
    scope: dict[str, Any] = {"__name__": "somewhere", "Context": Engine}
    exec("def quoted(ctx: 'Context', path: 'str') -> 'None': ...", scope)

    with pytest.raises(Invalid, match="the parameter ctx has the type Engine"):
        App("memory://").job(scope["quoted"])


def test_the_store_is_the_one_given_else_the_environments_else_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    assert App().url == DEFAULT_STORE
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:///other.db")
    assert App().url == "sqlite:///other.db"
    assert App("memory://").url == "memory://"


def test_the_store_may_be_set_until_it_is_used() -> None:
    app = App("sqlite:///nowhere/jobs.db")
    app.url = "memory://"
    app.job(add).enqueue(1)

    with pytest.raises(Conflict, match="in use already"):
        app.url = "sqlite:///jobs.db"
    app.close()
    app.url = "sqlite:///jobs.db"
    assert app.url == "sqlite:///jobs.db"
