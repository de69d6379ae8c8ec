"""The connection of a worker to one runner: paused, resumed, killed."""

import asyncio
import os
import signal

from holdfast.worker.frames import (
    StopReceived,
    encode,
)
from tests.worker.fake_runner import RecordingListener, open_connection


async def test_a_killed_link_is_retired() -> None:
    connection, child, far = await open_connection(RecordingListener())
    connection.kill()

    assert connection.retired
    assert child.signals == [signal.SIGKILL]
    connection._transport.close()
    far.close()


async def test_a_deaf_link_hears_nothing_until_it_listens_and_the_dead_are_heard_out() -> None:
    listener = RecordingListener()
    connection, _, far = await open_connection(listener)
    pipe = connection._pipe("stderr")
    assert connection.pause_reading()
    assert not connection.pause_reading()
    far.sendall(encode([StopReceived(1, thread=True)]))
    os.write(pipe, b"raw")
    await asyncio.sleep(0.05)
    assert listener.messages == []

    connection.resume_reading()
    await asyncio.sleep(0.05)

    assert sorted(map(str, listener.messages)) == sorted(map(str, [StopReceived(1, thread=True), b"raw"]))
    connection._exited = True
    assert not connection.pause_reading()
    for end in list(connection._pipes):
        connection._close(end)
    os.close(pipe)
    connection._transport.close()
    far.close()
