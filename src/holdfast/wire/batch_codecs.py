"""Codecs of batches: how attempts ended, and the result of each item. An error in one item leaves the others
as they are."""

from typing import Any, Literal

from protobuf import Message, Oneof

from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.limits import check_follow_ups, clip
from holdfast.core.spec import Json
from holdfast.core.tracebacks import check_failure
from holdfast.wire import requests, responses
from holdfast.wire.errors import error_detail, error_from_detail
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import json_text, optional_field, parse_json
from holdfast.wire.values import FAILURE, JOB, JOB_REQUEST, ErrorOneof, JobOneof


class _Completion:
    """How one attempt ended."""

    def encode(self, ended: requests.AttemptCompletion) -> pb.Completion:
        return pb.Completion(
            task_token=ended.task_token,
            outcome=None if ended.outcome is None else _encode_outcome(ended.outcome),
            op_id=ended.op_id,
            compensated=ended.compensated,
            follow_ups=list(map(JOB_REQUEST.encode, ended.follow_ups)),
        )

    def decode(self, message: pb.Completion) -> requests.AttemptCompletion:
        check_follow_ups(len(message.follow_ups))
        return requests.AttemptCompletion(
            task_token=message.task_token,
            outcome=_decode_outcome(message),
            op_id=optional_field(message, "op_id"),
            compensated=optional_field(message, "compensated"),
            follow_ups=tuple(map(JOB_REQUEST.decode, message.follow_ups)),
        )


COMPLETION = _Completion()


class CompletionsCodec:
    """Completions, each decoded on its own: an error in one does not affect the others."""

    value = requests.Complete

    def encode(self, value: requests.Complete) -> pb.CompleteRequest:
        ended = [one for one in value.completions if isinstance(one, requests.AttemptCompletion)]
        return pb.CompleteRequest(completions=list(map(COMPLETION.encode, ended)))

    def decode(self, message: pb.CompleteRequest) -> requests.Complete:
        return requests.Complete(tuple(map(_decode_completion, message.completions)))

    read = decode


def _decode_completion(one: pb.Completion) -> requests.AttemptCompletion | HoldfastError:
    try:
        return COMPLETION.decode(one)
    except Invalid as error:
        return error


_Succeeded = Oneof[Literal["success"], pb.Success]
_Failed = Oneof[Literal["failure"], pb.Failure]
_Stopped = Oneof[Literal["stopped"], pb.Stopped]


def _encode_outcome(outcome: Outcome) -> _Succeeded | _Failed | _Stopped:
    match outcome:
        case Success(result=result, where=where, seconds=seconds):
            text = None if result is None else _json(result)
            return _Succeeded("success", pb.Success(result=text, where=where, seconds=seconds))
        case Failure():
            return _Failed("failure", FAILURE.encode(check_failure(outcome)))
        case Stopped(reason=reason, where=where, seconds=seconds):
            text = None if reason is None else clip(reason)
            return _Stopped("stopped", pb.Stopped(reason=text, where=where, seconds=seconds))


def _json(result: Json) -> str:
    try:
        return json_text(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"result cannot be written as JSON: {error}") from error


def _decode_outcome(one: pb.Completion) -> Outcome | None:
    match one.outcome.value if one.outcome else None:
        case pb.Success() as success:
            text = optional_field(success, "result")
            result = None if text is None else parse_json(text, "result")
            return Success(result=result, **_place_and_time(success))
        case pb.Failure() as failure:
            return FAILURE.decode(failure)
        case pb.Stopped() as stopped:
            return Stopped(reason=optional_field(stopped, "reason"), **_place_and_time(stopped))
    return None


def _place_and_time(outcome: pb.Success | pb.Stopped) -> dict[str, Any]:
    return {name: optional_field(outcome, name) for name in ("where", "seconds")}


class BatchCodec:
    """The responses of a batch, each on its own."""

    value = responses.BatchResponse

    def __init__(self, message: type[pb.CompleteResponse] | type[pb.StatusResponse]) -> None:
        self._message = message

    def encode(self, value: responses.BatchResponse) -> Message:
        return self._message(answers=list(map(_encode_result, value.answers)))

    def decode(self, message: pb.CompleteResponse | pb.StatusResponse) -> responses.BatchResponse:
        return responses.BatchResponse(tuple(map(_decode_result, message.answers)))

    read = decode


def _encode_result(one: Job | HoldfastError | None) -> pb.JobOrError:
    if one is None:
        return pb.JobOrError()
    if isinstance(one, HoldfastError):
        return pb.JobOrError(answer=ErrorOneof("error", error_detail(one)))
    return pb.JobOrError(answer=JobOneof("job", JOB.encode(one)))


def _decode_result(one: pb.JobOrError) -> Job | HoldfastError | None:
    match one.answer.value if one.answer else None:
        case pb.Job() as job:
            try:
                return JOB.read(job)
            except Unavailable as error:
                return error
        case pb.ErrorDetail() as error:
            return error_from_detail(error)
    return None
