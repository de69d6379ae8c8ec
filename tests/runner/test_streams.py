"""What a handler prints, as text or as bytes, is kept with its job."""

import io

from holdfast.runner.context import current_context
from holdfast.runner.streams import RoutedStream
from tests.runner.recording_channel import RecordingChannel, context_on


async def test_bytes_written_under_the_text_are_kept_with_the_job() -> None:
    channel, below = RecordingChannel(), io.BytesIO()
    stream = RoutedStream(io.TextIOWrapper(below), "stdout")
    stream.buffer.write(b"outside")
    token = current_context.set(context_on(channel))
    assert stream.buffer.write(bytearray(b"in\xffside")) == 7
    stream.buffer.flush()
    current_context.reset(token)

    assert channel.calls == [("stdout", b"in\xffside")]
    assert below.getvalue() == b"outside"
