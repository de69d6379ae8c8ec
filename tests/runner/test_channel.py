"""The frames that a runner sends: one that cannot be written fails its own attempt only."""

import asyncio
from typing import cast

from holdfast.core.catalogue import WorkerEventType
from holdfast.runner.channel import FrameChannel, FrameSender
from holdfast.worker.executor import Ending
from holdfast.worker.frames import EmittedEvent, Ended, ProgressUpdate, Returned, ToWorker, from_runner


class Five(int):
    """A whole number that is more than one."""


class FakeTransport:
    """A transport that keeps what is written, as the worker would read it."""

    def __init__(self) -> None:
        self.heard: list[ToWorker] = []
        self._frames = from_runner()

    def write(self, data: bytes) -> None:
        for messages in self._frames.feed(data):
            self.heard += messages


async def test_a_message_that_cannot_be_written_fails_its_own_attempt_and_no_other() -> None:
    wire = FakeTransport()
    sender = FrameSender(asyncio.get_running_loop(), cast("asyncio.WriteTransport", wire))
    first, second, third = (FrameChannel(sender, number) for number in (1, 2, 3))
    sender.post(Ended(4, Ending(result=b"4"), 1.0))
    first.progress(1, Five(5), None)
    second.emit(WorkerEventType.CUSTOM, {"name": "odd", "data": 2**70})
    third.write("stdout", b"heard")
    third.flush()
    sender.post(Ended(5, Ending(result=b"5"), 1.0))
    await asyncio.sleep(0.01)

    four, one, two, three, five = wire.heard
    assert (four, five) == (
        Ended(4, Ending(result=b"4"), 1.0),
        Ended(5, Ending(result=b"5"), 1.0),
    )
    assert isinstance(three, EmittedEvent)
    assert (three.number, three.data) == (3, b"heard")
    for number, failed in ((1, one), (2, two)):
        assert isinstance(failed, Ended)
        assert failed.number == number
        assert failed.ending.failure is not None
        assert not failed.ending.failure.retryable
        assert "could not be sent to the worker" in failed.ending.failure.message

    first.progress(2, None, None)
    await asyncio.sleep(0.01)
    assert wire.heard[-1] == ProgressUpdate(1, 2, None, None)


async def test_those_that_return_nothing_share_a_message_and_none_overtakes_its_output() -> None:
    wire = FakeTransport()
    sender = FrameSender(asyncio.get_running_loop(), cast("asyncio.WriteTransport", wire))
    third = FrameChannel(sender, 3)
    sender.returned(1)
    sender.returned(2)
    third.write("stdout", b"said")
    third.flush()
    sender.returned(3)
    sender.returned(4)
    await asyncio.sleep(0.01)

    early, said, late = wire.heard
    assert isinstance(early, Returned)
    assert isinstance(said, EmittedEvent)
    assert isinstance(late, Returned)
    assert (early.numbers, said.number, late.numbers) == ([1, 2], 3, [3, 4])
    assert [len(message.at) for message in (early, late)] == [2, 2]
    assert early.at == sorted(early.at)
