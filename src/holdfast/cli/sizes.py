"""Sizes as people write them: 512MB, 1.5GB, 2GiB, 100000."""

import re

import click

_UNITS = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]i?b|)\Z", re.ASCII)


class Size(click.ParamType[int]):
    """A number of bytes, with or without a unit."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.match(str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a size; write 512MB, 1.5GB or 2GiB.", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])
