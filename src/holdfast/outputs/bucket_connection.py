"""Connections to buckets, configured by the environment, and the translation of their errors."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from holdfast.core.errors import Denied, Invalid, Unavailable
from holdfast.system import prepare_rust_client

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

FORKED = (
    "This process was forked from one that had used a bucket, and cannot use any bucket itself: start it"
    " by spawn (multiprocessing.set_start_method), or open output stores only after the fork."
)

# obstore has no class for a listing that is denied.
_DENIED = re.compile(r"status code: 40[13] ")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_VARIABLES = {
    "s3": ("AWS", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    "az": ("AZURE", ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
    "gs": ("GOOGLE", ("GOOGLE_BASE_URL",)),
}


def connect_bucket(scheme: str, bucket: str, prefix: str) -> "ObjectStore":
    """Return the bucket below `prefix`; no request is sent yet."""
    try:
        from obstore import exceptions, store
    except ModuleNotFoundError as error:
        raise Invalid(
            f"An output store at {scheme}:// needs another package: pip install 'holdfast[buckets]'"
        ) from error
    _forked()
    # A large object may take hours to transfer, but never a minute without any bytes.
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


_forked = cache(prepare_rust_client)


def _plain_http(scheme: str) -> bool:
    """Return whether http is allowed: to this machine, or where the environment says so."""
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
def translate_errors(place: str, applied: Literal["no", "unknown"]) -> Iterator[None]:
    """Run an operation of obstore, and raise our errors for its errors; `applied` says what an error
    leaves open."""
    from obstore import exceptions

    if _forked().is_set():
        raise Unavailable(FORKED)
    try:
        yield
    except FileNotFoundError as error:
        raise Unavailable(f"There is no such bucket for {place}: create it first.") from error
    except (ValueError, exceptions.InvalidPathError) as error:
        raise Invalid(f"{place} is not a valid path of an object: {_first_line(error)}") from error
    except (NotImplementedError, exceptions.NotSupportedError) as error:
        raise Invalid(f"{place} does not support this operation: {_first_line(error)}") from error
    except exceptions.BaseError as error:
        reason = _first_line(error)
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or (
            _DENIED.search(reason)
        ):
            # S3 also reports a missing object as denied to a client that may not list the bucket.
            hint = " (does the key have s3:ListBucket?)" if place.startswith("s3:") else ""
            raise Denied(f"Access to {place} is denied{hint}: {reason}") from error
        raise Unavailable(f"{place} does not answer: {reason}", applied=applied) from error


def _first_line(error: Exception) -> str:
    return f"{str(error).partition(chr(10))[0]:.300}"
