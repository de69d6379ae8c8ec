"""Buckets as the environment describes them: how they are reached, and what their errors mean here."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from threading import Event
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from holdfast.core.errors import Denied, Invalid, Unavailable
from holdfast.system import rest_at_exit

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

REST_SECONDS = 0.05
FORKED = (
    "This process was forked from one that had spoken to a bucket before, and cannot speak to any: start it"
    " by spawn (multiprocessing.set_start_method), or open output stores only after the fork."
)

# A listing that is denied has no class of its own.
_DENIED = re.compile(r"status code: 40[13] ")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_VARIABLES = {
    "s3": ("AWS", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    "az": ("AZURE", ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
    "gs": ("GOOGLE", ("GOOGLE_BASE_URL",)),
}


def connected(scheme: str, bucket: str, prefix: str) -> "ObjectStore":
    """The bucket, below `prefix`, of which nothing is asked yet."""
    try:
        from obstore import exceptions, store
    except ModuleNotFoundError as error:
        raise Invalid(
            f"An output store at {scheme}:// needs another package: pip install 'holdfast[buckets]'"
        ) from error
    _prepare()
    # An object may take its hours, but never a minute without a word.
    client: ClientConfig = {
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(minutes=1),
        "connect_timeout": timedelta(seconds=5),
        "allow_http": _plain_http(scheme),
    }
    retry: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
    below = prefix or None
    try:
        if scheme == "s3":
            return store.S3Store(bucket, prefix=below, client_options=client, retry_config=retry)
        if scheme == "az":
            return store.AzureStore(bucket, prefix=below, client_options=client, retry_config=retry)
        return store.GCSStore(bucket, prefix=below, client_options=client, retry_config=retry)
    except (exceptions.BaseError, ValueError) as error:
        raise Invalid(f"{scheme}://{bucket} cannot be reached: {_first_line(error)}") from error


@cache
def _prepare() -> None:
    rest_at_exit(REST_SECONDS)
    os.register_at_fork(after_in_child=_forked.set)


_forked = Event()
"""Whether this process is a copy of one that had spoken to a bucket: its threads were not copied."""


def _plain_http(scheme: str) -> bool:
    """Whether to talk without encryption: on this machine, or where the environment says so."""
    family, names = _VARIABLES[scheme]
    if os.environ.get(f"{family}_ALLOW_HTTP", "").lower() in ("1", "true", "yes"):
        return True
    for name in names:
        if (endpoint := os.environ.get(name, "")).lower().startswith("http://"):
            if urlsplit(endpoint).hostname in _LOOPBACK:
                return True
            raise Invalid(
                f"{name} is not encrypted: write https://, or set {family}_ALLOW_HTTP=true if the"
                " network is your own."
            )
    return False


@contextmanager
def translated(place: str, applied: Literal["no", "unknown"]) -> Iterator[None]:
    """An operation of obstore, whose errors are ours; `applied` is what to think of it after one."""
    from obstore import exceptions as theirs

    if _forked.is_set():
        raise Unavailable(FORKED)
    try:
        yield
    except FileNotFoundError as error:
        raise Unavailable(f"There is no such bucket for {place}: create it first.") from error
    except (ValueError, theirs.InvalidPathError) as error:
        raise Invalid(f"{place} is no place for an object: {_first_line(error)}") from error
    except (NotImplementedError, theirs.NotSupportedError) as error:
        raise Invalid(f"{place} cannot be written so: {_first_line(error)}") from error
    except theirs.BaseError as error:
        reason = _first_line(error)
        if isinstance(error, theirs.PermissionDeniedError | theirs.UnauthenticatedError) or (
            _DENIED.search(reason)
        ):
            # S3 says so of a missing object, too, to those who may not list the bucket.
            hint = " (does the key have s3:ListBucket?)" if place.startswith("s3:") else ""
            raise Denied(f"We are not let in at {place}{hint}: {reason}") from error
        raise Unavailable(f"{place} does not answer: {reason}", applied=applied) from error


def _first_line(error: Exception) -> str:
    return f"{str(error).partition(chr(10))[0]:.300}"
