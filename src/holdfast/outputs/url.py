"""The address of an output store, and the only place that turns it into an adapter."""

import re
from pathlib import Path
from urllib.parse import unquote

from holdfast.core.errors import Invalid
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import Outputs

_SCHEME_CHARACTERS_MAX = 20
BUCKETS = ("s3", "az", "gs")
_MISTYPED = re.compile(r"(file|https?|s3|az|gs)(:|//)|(?![./~])[^@]*:[^@]*@", re.IGNORECASE)
"""A mistyped address, or text that may contain a password: not the name of a folder."""
_FORMS = "write a path, file:///path, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix"


async def open_outputs(url: str, *, create: bool) -> Outputs:
    """Open the output store at `url`, which the caller closes. Raise `Invalid` for an unknown address.

    With `create`, the store is created if it does not exist, once even if many callers do so at the same
    time; without, a missing store raises `Unavailable`. Keys, region and endpoint of a bucket come from
    the environment, as AWS_…, AZURE_… or GOOGLE_… variables: see docs/outputs.md.
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        if not url or _MISTYPED.match(url):
            raise Invalid(f"An output store has an address: {_FORMS}.")
        return await DirectoryOutputs.open(Path(url), create=create)
    scheme = scheme.lower()
    if scheme == "file":
        return await DirectoryOutputs.open(_file_path(rest), create=create)
    if scheme not in BUCKETS:
        # Anything else may be a secret.
        known = scheme.isalnum() and len(scheme) <= _SCHEME_CHARACTERS_MAX
        called = f"{scheme}://" if known else "that"
        raise Invalid(f"No output store is called {called}; {_FORMS}.")
    from holdfast.outputs.bucket import BucketOutputs

    return await BucketOutputs.open(scheme, *_bucket(scheme, rest), create=create)


def _file_path(rest: str) -> Path:
    if not rest.startswith("/"):
        # Text with an @ may be a secret.
        path = "path" if not rest or "@" in unquote(rest) else rest
        raise Invalid(f"file:// is followed by a whole path; write file:///{path}")
    return Path(unquote(rest))


def _bucket(scheme: str, rest: str) -> tuple[str, str]:
    """Return the bucket and the prefix. Errors do not repeat the input: it may be a secret."""
    if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
        raise Invalid(
            f"Keys and options do not belong in an address: write {scheme}://bucket/prefix, and put"
            " them into the environment (AWS_…, AZURE_…, GOOGLE_… variables)."
        )
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise Invalid(f"{scheme}:// is followed by a bucket; write {scheme}://bucket/prefix")
    return bucket, prefix.strip("/")
