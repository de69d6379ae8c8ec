"""Codecs: how the bytes of a request become a message, within limits of depth and number of fields."""

import logging
import re
from functools import cache
from typing import TypeVar

from connectrpc.code import Code
from connectrpc.codec import Codec, proto_binary_codec, proto_json_codec
from connectrpc.errors import ConnectError
from protobuf import DescFieldValueList, DescFieldValueMessage, DescMessage, Message

from holdfast.core.limits import JSON_DEPTH_MAX, clip
from holdfast.server.limits import PUBLISH_FIELDS_MAX, REQUEST_BYTES_MAX, REQUEST_FIELDS_MAX
from holdfast.wire.errors import INTERNAL_ERROR

log = logging.getLogger("holdfast.server")

M = TypeVar("M", bound=Message)

MESSAGE_CHARACTERS_MAX = 300
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_FLAT = re.compile(rb"[^][{}]++")
VARINT_BITS_MAX = 70
_CLASS = re.compile(r"<class '(\w+)'>")


def codecs() -> list[Codec]:
    """Return the codecs of every service. Fields of messages below that size are not counted."""
    return [_Counted(codec, REQUEST_FIELDS_MAX, REQUEST_FIELDS_MAX) for codec in _codecs()]


def publish_codecs() -> list[Codec]:
    """Return the codecs of PublishJobEvents, whose messages may be large, but not of very many fields."""
    return [_Counted(codec, REQUEST_BYTES_MAX, PUBLISH_FIELDS_MAX) for codec in _codecs()]


def _codecs() -> list[Codec]:
    return [_Checked(proto_binary_codec()), _Json(proto_json_codec(ignore_unknown_fields=False))]


class _Checked:
    """A codec that raises short errors of the protocol for a message that cannot be decoded."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def name(self) -> str:
        return self._codec.name()

    def encode(self, message: Message) -> bytes:
        try:
            return self._codec.encode(message)
        except Exception as error:
            log.exception("a response cannot be encoded")
            raise ConnectError(Code.INTERNAL, INTERNAL_ERROR) from error

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        try:
            found: M = self._codec.decode(data, message_class)
        except Exception as error:
            name = message_class.desc().type_name
            reason = clip(_CLASS.sub(r"\1", str(error)), MESSAGE_CHARACTERS_MAX)
            text = f"The request is not a valid {name} in {self.name()}: {reason}"
            raise ConnectError(Code.INVALID_ARGUMENT, text) from error
        return found


class _Json(_Checked):
    """JSON that is not nested too deep: the native parser would crash the whole process."""

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX and too_deep(data):
            text = f"The request is nested too deep: at most {JSON_DEPTH_MAX} levels are allowed."
            raise ConnectError(Code.INVALID_ARGUMENT, text)
        return super().decode(data, message_class)


class _Counted:
    """A codec that counts the fields of a message above some size before it decodes it. One of many small
    fields would take a hundred times its size in memory, and block the loop for seconds."""

    def __init__(self, codec: Codec, size: int, most: int) -> None:
        self._codec = codec
        self._size = size
        self._most = most
        self._json = codec.name() == "json"

    def name(self) -> str:
        return self._codec.name()

    def encode(self, message: Message) -> bytes:
        return self._codec.encode(message)

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        if len(data) > self._size and self._has_more(data, message_class):
            text = f"The message has more than {self._most:,} fields: send it in several."
            raise ConnectError(Code.RESOURCE_EXHAUSTED, text)
        found: M = self._codec.decode(data, message_class)
        return found

    def _has_more(self, data: bytes | bytearray, message_class: type[M]) -> bool:
        if self._json:
            return json_has_more(data, self._most)
        return fields_in(data, message_class.desc(), self._most) > self._most


def json_has_more(data: bytes | bytearray, most: int) -> bool:
    """Whether this JSON has more than `most` fields, lists and objects. In what is larger than a request,
    marks in strings count, too (to skip strings would take too long), and so do items of lists."""
    if len(data) > REQUEST_BYTES_MAX:
        return data.count(b",") + _marks(data) > most
    if len(data) <= most or _marks(data) <= most or too_deep(data):  # that has its own error
        return False
    return _marks(_TEXT.sub(b"", data)) > most


def _marks(data: bytes | bytearray) -> int:
    """Return how many fields, lists and objects there are, if no string has one of their marks in it."""
    return data.count(b":") + data.count(b"[") + data.count(b"{")


def fields_in(data: bytes | bytearray, desc: DescMessage, most: int) -> int:
    """Return how many fields a message has, with those of nested messages, counted up to `most` + 1. The
    count ends where the bytes are not a message: decoding them raises what is wrong."""
    count, todo = 0, [(0, len(data), _nested(desc))]
    while todo and count <= most:
        at, end, nested = todo.pop()
        try:
            while at < end and count <= most:
                tag, at = _varint(data, at)
                count += 1
                if tag & 7 == 2:
                    size, at = _varint(data, at)
                    if size and (inner := nested.get(tag >> 3)) is not None:
                        todo.append((at, at + size, _nested(inner)))
                    at += size
                elif tag & 7 == 0:
                    _, at = _varint(data, at)
                elif tag & 7 in (3, 4):  # groups are obsolete, and none of our messages has one
                    return most + 1
                else:
                    at += 8 if tag & 7 == 1 else 4
        except IndexError:
            continue
    return min(count, most + 1)


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the number at an index, and the index behind it; `IndexError` if there is none."""
    if (byte := data[at]) < 128:  # as most of them are
        return byte, at + 1
    value = shift = 0
    while (byte := data[at]) >= 128:
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if shift >= VARINT_BITS_MAX:  # the time for a longer one would grow quadratically
            raise IndexError(at)
    return value | byte << shift, at + 1


@cache
def _nested(desc: DescMessage) -> dict[int, DescMessage]:
    """Return the types of the nested messages, by the numbers of their fields."""
    found = {}
    for field in desc.fields:
        value = field.value
        inner = value.element if isinstance(value, DescFieldValueList) else value
        inner = inner.message if isinstance(inner, DescFieldValueMessage) else inner
        if isinstance(inner, DescMessage):
            found[field.number] = inner
    return found


def too_deep(data: bytes | bytearray) -> bool:
    """Whether this JSON is nested deeper than `JSON_DEPTH_MAX`."""
    depth = 0
    for byte in _FLAT.sub(b"", _TEXT.sub(b"", data)):
        depth += 1 if byte in b"[{" else -1
        if depth > JSON_DEPTH_MAX:
            return True
    return False
