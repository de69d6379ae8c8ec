"""Codecs: how the bytes of a request become a message, whatever they are."""

import logging
import re
from typing import TypeVar

from connectrpc.code import Code
from connectrpc.codec import Codec, proto_binary_codec, proto_json_codec
from connectrpc.errors import ConnectError
from protobuf import Message

from holdfast.core.limits import JSON_DEPTH_MAX, clip
from holdfast.wire.errors import FAULT

log = logging.getLogger("holdfast.server")

M = TypeVar("M", bound=Message)

WORDS_CHARACTERS_MAX = 300
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_FLAT = re.compile(rb"[^][{}]++")
_CLASS = re.compile(r"<class '(\w+)'>")


def codecs() -> list[Codec]:
    """The codecs of every service."""
    return [_Careful(proto_binary_codec()), _Json(proto_json_codec(ignore_unknown_fields=False))]


class _Careful:
    """A codec that says shortly what is wrong with a message."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def name(self) -> str:
        return self._codec.name()

    def encode(self, message: Message) -> bytes:
        try:
            return self._codec.encode(message)
        except Exception as error:
            log.exception("an answer cannot be written")
            raise ConnectError(Code.INTERNAL, FAULT) from error

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        try:
            found: M = self._codec.decode(data, message_class)
        except Exception as error:
            name = message_class.desc().type_name
            wrong = clip(_CLASS.sub(r"\1", str(error)), WORDS_CHARACTERS_MAX)
            words = f"This is no {name} in {self.name()}: {wrong}"
            raise ConnectError(Code.INVALID_ARGUMENT, words) from error
        return found


class _Json(_Careful):
    """JSON that is not too deep: the parser, which is native, would take the whole process with it."""

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX and too_deep(data):
            words = f"The request is nested too deep; at most {JSON_DEPTH_MAX} is taken."
            raise ConnectError(Code.INVALID_ARGUMENT, words)
        return super().decode(data, message_class)


def too_deep(data: bytes | bytearray) -> bool:
    """Whether this JSON is nested deeper than we read."""
    depth = 0
    for byte in _FLAT.sub(b"", _TEXT.sub(b"", data)):
        depth += 1 if byte in b"[{" else -1
        if depth > JSON_DEPTH_MAX:
            return True
    return False
