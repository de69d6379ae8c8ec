"""Worker events as messages of job.v1, and back, without loss of what clients of job.v1 send."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace
from protobuf import Message, Oneof
from protobuf.wkt import Duration, Timestamp

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Attributes, Event
from holdfast.core.output_chunks import chunks_of, encode_batch
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.mapping import from_duration, from_timestamp, to_duration, to_timestamp

_NUMBERS = {kind: number for number, kind in enumerate(WorkerEventType, 1) if kind is not kind.CUSTOM}
_KINDS = {number: kind for kind, number in _NUMBERS.items()}
_STREAMS = {pb.StreamType.STDOUT: "stdout", pb.StreamType.STDERR: "stderr"}
_STREAM_NUMBERS = {name: number for number, name in _STREAMS.items()}
_PAYLOADS: dict[str, type[Message]] = {
    WorkerEventType.PROCESS_START: pb.ProcessStart,
    WorkerEventType.PROCESS_END: pb.ProcessEnd,
    WorkerEventType.PROCESS_ERROR: pb.ProcessError,
    WorkerEventType.HEARTBEAT: pb.Heartbeat,
    WorkerEventType.TERMINAL_RESIZE: pb.TerminalResize,
    WorkerEventType.CONTAINER_CREATE: pb.ContainerCreate,
    WorkerEventType.CONTAINER_REMOVE: pb.ContainerRemove,
    WorkerEventType.IMAGE_PULL_START: pb.ImagePullStart,
    WorkerEventType.IMAGE_PULL_PROGRESS: pb.ImagePullProgress,
    WorkerEventType.IMAGE_PULL_COMPLETE: pb.ImagePullComplete,
    WorkerEventType.GIT_CLONE_START: pb.GitCloneStart,
    WorkerEventType.GIT_CLONE_END: pb.GitCloneEnd,
    WorkerEventType.GIT_CLONE_ERROR: pb.GitCloneError,
}
INT32_MAX = 2**31 - 1
_ATTRIBUTE_NAMES = {
    "cols": "columns",
    "run_duration": "seconds",
    "elapsed_time": "seconds",
    "clone_duration": "seconds",
    "pull_duration": "seconds",
}
"""Fields of job.v1 whose attribute has another name in holdfast."""


def event_types_of(wanted: list[pb.EventType]) -> frozenset[str]:
    """Return the event types that a filter selects; an empty set selects all."""
    chosen = {_KINDS.get(int(number)) for number in wanted}
    return frozenset() if None in chosen else frozenset(str(kind) for kind in chosen)


def event_of(message: pb.JobEvent, now: datetime) -> Event:
    """Return the event that a worker sent, or raise `Invalid`. An event without a time occurred now."""
    kind = _KINDS.get(int(message.event_type))
    if kind is None:
        raise Invalid(f"Event {message.sequence} has an unknown type: {int(message.event_type)}.")
    payload = message.event_data
    if payload is not None and payload.field != str(kind):
        raise Invalid(f"Event {message.sequence} is a {kind} and carries a {payload.field}.")
    event = Event(
        kind,
        EventClass.WORKER,
        from_timestamp(message.timestamp) if message.timestamp is not None else now,
        sequence=message.sequence,
    )
    if payload is None:
        return event
    return _filled(event, payload.value)


def _filled(event: Event, payload: Message) -> Event:
    match payload:
        case pb.Output():
            return replace(event, stream=_STREAMS.get(payload.stream_type, "stdout"), data=payload.output)
        case pb.OutputBatch():
            return _batch(event, payload)
    return replace(event, attributes=_attributes(payload))


def _batch(event: Event, payload: pb.OutputBatch) -> Event:
    start = payload.start_sequence or event.sequence or 0
    end = payload.end_sequence or start + len(payload.outputs) - 1
    if start != event.sequence:
        raise Invalid(f"The batch at {event.sequence} says that it starts at {start}.")
    if end - start + 1 != len(payload.outputs):
        raise Invalid(
            f"The batch from {start} to {end} has {len(payload.outputs)} items: each takes a sequence."
        )
    data, attributes = encode_batch(
        [
            (_STREAMS.get(one.stream_type, "stdout"), one.output, one.timestamp_delta_ms)
            for one in payload.outputs
        ]
    )
    if payload.playback_interval_millis:
        attributes["playback_ms"] = payload.playback_interval_millis
    if payload.first_timestamp_ms:
        first = datetime.fromtimestamp(payload.first_timestamp_ms / 1000, UTC)
        event = replace(event, occurred_at=first)
    for one in payload.outputs:
        _later(event, one.timestamp_delta_ms)
    return replace(event, end_sequence=end, data=data, attributes=attributes)


def _later(event: Event, milliseconds: int) -> datetime:
    """Return an instant after the event; raise `OverflowError` if it is out of range."""
    return event.occurred_at + timedelta(milliseconds=milliseconds)


def _attributes(payload: Message) -> Attributes:
    found: Attributes = {}
    for field in payload.desc().fields:
        value = getattr(payload, field.local_name)
        if isinstance(value, Timestamp):
            value = from_timestamp(value).isoformat()
        elif isinstance(value, Duration):
            value = from_duration(value).total_seconds()
        if value is not None:
            found[_ATTRIBUTE_NAMES.get(field.name, field.name)] = value
    return found


def job_event(event: Event, from_sequence: int = 0) -> pb.JobEvent | None:
    """Return the event as a message of job.v1, or None if job.v1 has no such type. Of a batch, the items
    before `from_sequence` are left out."""
    number = _NUMBERS.get(event.event_type)  # type: ignore[call-overload]
    if number is None:
        return None
    sequence = event.sequence or 0
    payload: Message
    if event.event_type == WorkerEventType.OUTPUT:
        stream = _STREAM_NUMBERS.get(event.stream or "", pb.StreamType.UNSPECIFIED)
        payload = pb.Output(output=event.data or b"", stream_type=stream)
    elif event.event_type == WorkerEventType.OUTPUT_BATCH:
        sequence = max(sequence, from_sequence)
        try:
            payload = _output_batch(event, sequence)
        except OverflowError:  # its times are out of range; its output is not lost
            payload = pb.OutputBatch(outputs=[pb.OutputItem(output=event.data or b"")])
    else:
        payload = _payload(event)
    return pb.JobEvent(
        sequence=sequence,
        timestamp=to_timestamp(event.occurred_at),
        event_type=pb.EventType(number),
        event_data=Oneof(str(event.event_type), payload),  # type: ignore[arg-type]
        attempt=event.attempt or 0,
    )


def _output_batch(event: Event, start: int) -> pb.OutputBatch:
    playback = event.attributes.get("playback_ms", 0)
    return pb.OutputBatch(
        outputs=[
            pb.OutputItem(
                output=piece.data,
                stream_type=_STREAM_NUMBERS.get(piece.stream, pb.StreamType.UNSPECIFIED),
                timestamp_delta_ms=_delay(piece.at - event.occurred_at),
            )
            for piece in chunks_of(event)
            if piece.sequence >= start
        ],
        start_sequence=start,
        end_sequence=event.last_sequence,
        first_timestamp_ms=int(event.occurred_at.timestamp() * 1000),
        playback_interval_millis=(playback if type(playback) is int and 0 <= playback <= INT32_MAX else 0),
    )


def _delay(length: timedelta) -> int:
    """Return the milliseconds, limited to what job.v1 can express: 24 days."""
    return max(-INT32_MAX, min(length // timedelta(milliseconds=1), INT32_MAX))


def _payload(event: Event) -> Message:
    made = _PAYLOADS[event.event_type]
    fields: dict[str, Any] = {}
    try:
        for field in made.desc().fields:
            value = event.attributes.get(_ATTRIBUTE_NAMES.get(field.name, field.name))
            if value is not None:
                fields[field.local_name] = _encoded(field.name, value)
        message = made(**fields)
        message.to_binary()  # only this finds numbers that are too large
    except (TypeError, ValueError, OverflowError):
        # A holdfast worker published attributes of its own.
        return made()
    return message


def _encoded(name: str, value: object) -> object:
    if name.endswith("_at") and isinstance(value, str):
        return to_timestamp(datetime.fromisoformat(value))
    if _ATTRIBUTE_NAMES.get(name) == "seconds" and isinstance(value, int | float):
        return to_duration(timedelta(seconds=value))
    return value
