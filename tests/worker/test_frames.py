"""Frames between a worker and its runners: cut to size, in order."""

from holdfast.worker.frames import (
    FRAME_BYTES,
    FRAME_BYTES_MAX,
    EmittedEvent,
    ProgressUpdate,
    ToWorker,
    encode,
    from_runner,
)


def test_many_words_are_several_frames_and_arrive_in_order() -> None:
    words: list[ToWorker] = [EmittedEvent(1, "output", 1.0, "stdout", bytes(60_000)) for _ in range(1200)]
    words[7] = ProgressUpdate(2, 1, None, None)

    data = encode(words)

    frames = from_runner()
    cuts = range(0, len(data), 256 * 1024)
    heard = [word for at in cuts for some in frames.feed(data[at : at + 256 * 1024]) for word in some]
    assert len(data) > FRAME_BYTES_MAX
    assert heard == words
    length = int.from_bytes(data[:4], "big")
    assert length <= FRAME_BYTES
