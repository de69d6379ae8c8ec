"""One call of a handler: its arguments from the payload, its ending from what it returns or raises."""

import asyncio
import concurrent.futures
import contextvars
import os
import traceback
from collections.abc import Callable
from concurrent.futures import Executor as Threads
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from types import TracebackType

import msgspec
from msgspec.structs import replace

from holdfast import tracing
from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import check_delay, clip
from holdfast.core.process_spec import CRASH_EXITS
from holdfast.core.spec import Json
from holdfast.core.tracebacks import clip_traceback
from holdfast.ports import JobRequest
from holdfast.runner.app import Handler, HandlerFunction
from holdfast.runner.context import CheckpointMismatch, Context, current_context
from holdfast.runner.errors import Cancelled, PermanentError, Snooze, ValidationError
from holdfast.runner.output_promises import NO_OUTPUT_STORE, PromisedOutputs, location_of
from holdfast.runner.signature import OtherNames
from holdfast.runner.stored_result import store_result
from holdfast.worker.executor import RETURNED, Ending

_PLUMBING = tuple(
    os.path.dirname(file) + os.sep for file in (__file__, asyncio.__file__, concurrent.futures.__file__)
)
"""The folders of the code that calls handlers."""
_Returned = tuple[Json, BaseException | None]
OUTPUT_STORE_DELAY = timedelta(seconds=30)
"""When a job is tried again for which this worker has not the right output store."""


async def handle(job: Handler, context: Context, payload: bytes, threads: Threads) -> Ending:
    """Run the handler to its end, and return how it ended. Anything it raises is an ending."""
    context.expects_lock = job.has_lock
    context.declared = job.outputs
    current_context.set(context)
    tracing.attach_context(context.traceparent)
    try:
        arguments = job.arguments.decode(payload)
    except Invalid as error:
        return not_parsed(error.message, not_understood=isinstance(error, OtherNames))
    except BaseException as error:  # raised by a type of the user, as it was constructed
        return _raised(error, context)
    if (promise := context.promise) is not None and promise.store is not None:
        try:
            await context.attempt_outputs().open()
        except HoldfastError as error:  # before any work is done in vain
            return Ending(snooze=OUTPUT_STORE_DELAY, reason=_words(error))
    try:
        if job.is_async:  # without another coroutine around it
            called = job.function
            result = await (called(context, **arguments) if job.takes_context else called(**arguments))
        else:
            result = await _call(job, context, arguments, threads)
        for number, promised in context.follow_up_outputs.items():
            request = await _with_outputs(context, context.follow_ups[number], promised)
            context.follow_ups[number] = request
    except BaseException as error:
        return _raised(error, context)
    if result is None and not context.follow_ups:
        return RETURNED
    return await _returned(result, job, context)


async def _with_outputs(context: Context, request: JobRequest, promised: PromisedOutputs) -> JobRequest:
    """Return the request of a follow-up with the outputs that its job promises, and their store."""
    store = context.outputs if promised.stored else None
    outputs = await store.get(create=True) if store is not None else None
    if outputs is None and promised.stored:
        raise Invalid(NO_OUTPUT_STORE)
    location = None if outputs is None else location_of(outputs)
    return replace(request, spec=await promised.in_spec(request.spec, location))


async def compensate(job: Handler, context: Context, payload: bytes, threads: Threads) -> Ending:
    """Run the job's compensation, and return how that ended."""
    context.expects_lock = job.has_lock
    current_context.set(context)
    tracing.attach_context(context.traceparent)
    hook = job.compensate
    assert hook is not None  # the worker compensates only jobs that have one
    try:
        arguments = job.arguments.decode(msgspec.Raw(payload))
        await _call(hook, context, arguments, threads)
    except NoThread as error:
        return _machine_fault(_failed(error, retryable=True, stage=Stage.INPUT))
    except BaseException as error:
        context.fail(_words(error), _traceback_of(error))
        return Ending(compensated=False)
    return Ending(compensated=True)


class NoThread(Exception):
    """The system has no thread for a handler."""


async def _call(
    hook: HandlerFunction, context: Context, arguments: dict[str, object], threads: Threads
) -> Json:
    given = (context,) if hook.takes_context else ()
    if hook.is_async:
        return await hook.function(*given, **arguments)
    inside = contextvars.copy_context()
    work = partial(inside.run, _call_plain, hook.function, given, arguments)
    result, error = await _in_thread(threads, work)
    if error is not None:
        raise error
    return result


def _in_thread(threads: Threads, work: Callable[[], _Returned]) -> asyncio.Future[_Returned]:
    """Begin the work in a thread; `NoThread` when the system has none. The pool then keeps what it was
    given for the next free thread, so `done` is cancelled to make that do nothing."""
    done: Future[_Returned] = Future()

    def run() -> None:
        if done.set_running_or_notify_cancel():
            done.set_result(work())

    try:
        submitted = threads.submit(run)
    except RuntimeError as error:
        if done.cancel():
            raise NoThread(str(error)) from error
    else:
        submitted.add_done_callback(lambda _: done.cancel())  # if the pool is closed before
    return asyncio.wrap_future(done)


def _call_plain(
    function: Callable[..., Json], given: tuple[Context, ...], arguments: dict[str, object]
) -> _Returned:
    """Return what the function returned or raised, as a value: a future refuses StopIteration."""
    try:
        return function(*given, **arguments), None
    except BaseException as error:
        return None, error


async def _returned(result: Json, job: Handler, context: Context) -> Ending:
    """Return the ending of a handler that has returned: a success, whatever its result is like."""
    document = await store_result(job.arguments.result_place.result(result), context)
    return Ending(result=document, follow_ups=_follow_ups(context))


def _follow_ups(context: Context) -> bytes:
    return msgspec.json.encode(context.follow_ups) if context.follow_ups else b""


def _raised(error: BaseException, context: Context) -> Ending:
    if isinstance(error, Snooze):
        return _snoozed(error)
    if isinstance(error, NoThread):
        return _machine_fault(_failed(error, retryable=True, stage=Stage.INPUT))
    if isinstance(error, Cancelled):
        return Ending(cancelled=True, stopped=True, reason=_words(error) if error.args else None)
    if isinstance(error, asyncio.CancelledError) and context.cancelled:
        return Ending(cancelled=True, stopped=True)
    trace = _traceback_of(error)
    context.fail(_words(error), trace)
    ending = _failure_of(error, context)
    assert ending.failure is not None
    return replace(ending, failure=replace(ending.failure, traceback=trace))


def _failure_of(error: BaseException, context: Context) -> Ending:
    if isinstance(error, CheckpointMismatch):
        return _failed(error, retryable=False, stage=Stage.INPUT, reason=ReasonCode.VALIDATION_FAILED)
    if isinstance(error, ValidationError):
        return _failed(error, retryable=False, stage=Stage.EXEC, reason=ReasonCode.VALIDATION_FAILED)
    if isinstance(error, SystemExit):
        return _exited(error)
    ending = _failed(error, retryable=not isinstance(error, PermanentError))
    fault = context.output_fault
    if fault is not None and (error is fault or error.__cause__ is fault):
        return _machine_fault(ending, not_started=True)
    return ending


def _machine_fault(ending: Ending, *, not_started: bool = False) -> Ending:
    """Return the same failure as one of this machine, not of the handler."""
    assert ending.failure is not None
    return replace(ending, failure=replace(ending.failure, not_started=not_started), machine=True)


def _snoozed(error: Snooze) -> Ending:
    try:
        delay = check_delay(error.delay, "A snooze")
    except Invalid as invalid:
        return _failed(invalid, retryable=True)
    reason = None if error.reason is None else clip(str(error.reason))
    return Ending(snooze=delay, reason=reason)


def _exited(error: SystemExit) -> Ending:
    code = error.code if isinstance(error.code, int) else int(error.code is not None)
    failure = Failure(
        message=f"The handler called exit({clip(repr(error.code), 200)}).",
        code="SystemExit",
        exit_code=code if abs(code) < 2**31 else 1,
        crash=code in CRASH_EXITS,
    )
    return Ending(failure=failure)


def not_parsed(words: str, *, not_understood: bool) -> Ending:
    """Return the ending of an attempt that has not begun, because its job cannot be read here; with
    `not_understood`, because of a name that another version of the code may know."""
    failure = Failure(
        message=words,
        code="Invalid",
        retryable=False,
        stage=Stage.INPUT,
        reason_code=ReasonCode.PARSE_ERROR,
        not_understood=not_understood,
    )
    return Ending(failure=failure)


def internal_error(error: BaseException) -> Ending:
    """Return the ending of an attempt that failed because of an error in holdfast itself."""
    ending = _failed(error, retryable=True)
    assert ending.failure is not None
    trace = _formatted(error, error.__traceback__)
    return replace(ending, failure=replace(ending.failure, traceback=trace))


def _failed(
    error: BaseException,
    *,
    retryable: bool,
    stage: Stage = Stage.EXEC,
    reason: ReasonCode | None = None,
) -> Ending:
    failure = Failure(
        message=_words(error),
        code=clip(type(error).__name__, 128),
        retryable=retryable,
        stage=stage,
        reason_code=reason,
    )
    return Ending(failure=failure)


def _words(error: BaseException) -> str:
    """Return the message of the error, even if its `__str__` raises."""
    try:
        return clip(str(error)) or type(error).__name__
    except BaseException:
        return f"{type(error).__name__}, whose message cannot be shown"


def _traceback_of(error: BaseException) -> str:
    """Return the traceback as Python prints it, with the causes of the error, without the frames above the
    first of the handler's own."""
    try:
        return _formatted(error, _user_frames(error))
    except BaseException:  # the error cannot be shown
        return _words(error)


def _formatted(error: BaseException, trace: TracebackType | None) -> str:
    return clip_traceback("".join(traceback.format_exception(type(error), error, trace)).rstrip("\n"))


def _user_frames(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PLUMBING):
        trace = trace.tb_next
    return trace
