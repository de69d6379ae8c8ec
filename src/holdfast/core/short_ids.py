"""Short ids: the part of a job's id that people read and type.

Ids that are generated in the order of time begin alike; their last characters are random. So a short id is
the end of such an id, and the beginning of any other.
"""

import re

SHORT_ID_CHARACTERS_MIN = 4
"""The fewest characters that a job is looked for by: with fewer, too many fit."""
SHORT_ID_ROWS_MAX = 1_000_000
"""How many generated ids, the newest first, are compared with the end of an id."""
SHORT_ID_MATCHES_MAX = 1_000
"""How many jobs that fit a short id are read at most."""
TIMED_RANGES = (("01", "02"), ("cached-01", "cached-02"))
"""Where ids lie that are generated in the order of time, until the year 2039: each from, and up to."""

_SHOWN = 8
_UUID = re.compile(r"(?:cached-)?[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_SHORT = re.compile(r"[0-9a-f]{8,12}\Z")
_END = re.compile(r"[0-9a-f-]+\Z")


def short_id(job_id: str) -> str:
    """Return what tables show of an id, by which `fits_short_id` finds the job. An id that somebody chose is
    shown whole."""
    if (found := _UUID.match(job_id)) is None:
        return job_id
    return job_id[-_SHOWN:] if found[1] == "7" else job_id[: job_id.index("-", _SHOWN)]


def is_whole(text: str) -> bool:
    """Whether this is a whole id as holdfast makes them."""
    return _UUID.match(text) is not None


def is_shown(text: str) -> bool:
    """Whether this looks like what a table shows of a generated id."""
    return _SHORT.match(text) is not None


def may_be_end(text: str) -> bool:
    """Whether an id that was generated in the order of time may end so."""
    return _END.match(text) is not None


def fits_short_id(job_id: str, text: str) -> bool:
    """Whether the id begins with the text or, if it was generated in the order of time, ends with it."""
    if job_id.startswith(text):
        return True
    timed = any(first <= job_id < end for first, end in TIMED_RANGES)
    return timed and job_id.endswith(text) and may_be_end(text)
