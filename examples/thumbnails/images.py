"""Pictures with the standard library alone: PPM in, small ones out as PNG."""

import math
import re
import struct
import zlib
from dataclasses import dataclass

_HEADER = re.compile(rb"P6\s+(\d+)\s+(\d+)\s+255\s")


class Broken(Exception):
    """The data is not a picture."""


@dataclass(frozen=True)
class Picture:
    """Rows of pixels, three bytes each."""

    width: int
    height: int
    pixels: bytes


def read_ppm(data: bytes) -> Picture:
    header = _HEADER.match(data)
    if header is None:
        raise Broken("it is not a PPM file of 8-bit colours")
    width, height = int(header[1]), int(header[2])
    pixels = data[header.end() :]
    if not width or not height or len(pixels) != width * height * 3:
        raise Broken(f"{width} x {height} pixels are promised, {len(pixels)} bytes are there")
    return Picture(width, height, pixels)


def write_ppm(picture: Picture) -> bytes:
    return b"P6 %d %d 255\n" % (picture.width, picture.height) + picture.pixels


def write_png(picture: Picture) -> bytes:
    stride = picture.width * 3
    rows = (picture.pixels[y * stride : (y + 1) * stride] for y in range(picture.height))
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def shrink(picture: Picture, width: int) -> Picture:
    """Each new pixel is the mean of the square it stands for."""
    if width >= picture.width:
        return picture
    height = max(1, round(picture.height * width / picture.width))
    made = bytearray()
    for y in range(height):
        top, bottom = y * picture.height // height, (y + 1) * picture.height // height
        for x in range(width):
            left, right = x * picture.width // width, (x + 1) * picture.width // width
            made += _mean(picture, left, right, top, max(bottom, top + 1))
    return Picture(width, height, bytes(made))


def _mean(picture: Picture, left: int, right: int, top: int, bottom: int) -> bytes:
    stride = picture.width * 3
    square = b"".join(
        picture.pixels[y * stride + left * 3 : y * stride + right * 3] for y in range(top, bottom)
    )
    return bytes(sum(square[colour::3]) * 3 // len(square) for colour in range(3))


def sunrise(width: int, height: int) -> Picture:
    """A picture to try things on: a sun over a red sky."""
    made = bytearray()
    for y in range(height):
        for x in range(width):
            sun = math.hypot(x - width / 2, y - height / 2) < height / 4
            made += bytes((255, 220, 80) if sun else (200 - 120 * y // height, 60, 90))
    return Picture(width, height, bytes(made))
