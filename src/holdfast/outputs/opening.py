"""Opening an output store: the one place that turns its address into an adapter."""

import re
from pathlib import Path
from urllib.parse import unquote

from holdfast.core.errors import Invalid
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import Outputs

_SCHEME_CHARACTERS_MAX = 20
BUCKETS = ("s3", "az", "gs")
_MISTYPED = re.compile(r"(file|https?|s3|az|gs)(:|//)|(?![./~])[^@]*:[^@]*@", re.IGNORECASE)
"""What was meant as an address, or has a password in it, and is no name of a folder."""
_WRITE = (
    "write a path, file:///path, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix"
)


async def open_outputs(url: str, *, create: bool) -> Outputs:
    """The output store at `url`; close it when done. `Invalid` when the address is none of ours.

    With `create` it is made if there is none: of many who do so at once, one makes it. Without,
    `Unavailable` says that there is none. What a bucket asks for (keys, region, an endpoint) comes from
    the environment, as AWS_…, AZURE_… or GOOGLE_… variables: see docs/outputs.md.
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        if not url or _MISTYPED.match(url):
            raise Invalid(f"An output store has an address: {_WRITE}.")
        return await DirectoryOutputs.open(Path(url), create=create)
    scheme = scheme.lower()
    if scheme == "file":
        return await DirectoryOutputs.open(_file_path(rest), create=create)
    if scheme not in BUCKETS:
        known = (
            scheme.isalnum() and len(scheme) <= _SCHEME_CHARACTERS_MAX
        )  # else it may be a secret
        called = f"{scheme}://" if known else "that"
        raise Invalid(f"No output store is called {called}; {_WRITE}.")
    from holdfast.outputs.bucket import BucketOutputs

    return await BucketOutputs.open(scheme, *_bucket(scheme, rest), create=create)


def _file_path(rest: str) -> Path:
    if not rest.startswith("/"):
        path = "path" if not rest or "@" in unquote(rest) else rest  # what has one may be a secret
        raise Invalid(f"file:// is followed by a whole path; write file:///{path}")
    return Path(unquote(rest))


def _bucket(scheme: str, rest: str) -> tuple[str, str]:
    """The bucket and the prefix in it. Nothing of the rest is repeated: it may be a secret."""
    if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
        raise Invalid(
            f"Keys and options do not belong into an address: write {scheme}://bucket/prefix, and put"
            " them into the environment (AWS_…, AZURE_…, GOOGLE_… variables)."
        )
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise Invalid(f"{scheme}:// is followed by a bucket; write {scheme}://bucket/prefix")
    return bucket, prefix.strip("/")
