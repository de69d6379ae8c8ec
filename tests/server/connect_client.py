"""A client of every service by Connect, with or without a key; and how its calls are refused."""

from collections.abc import Coroutine
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from pyqwest import Client, HTTPTransport

from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryServiceClient
from holdfast.wire.generated.job.v1.job_connect import JobEventsServiceClient, JobServiceClient


class ConnectClient:
    """The clients of the three services at one address; every call has `headers`."""

    def __init__(self, url: str, key: str | None) -> None:
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}
        http = Client(HTTPTransport(enable_otel=False))
        self.jobs = JobServiceClient(url, http_client=http, interceptors=[self])
        self.events = JobEventsServiceClient(url, http_client=http, interceptors=[self])
        self.registry = RegistryServiceClient(url, http_client=http, interceptors=[self])

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        ctx.request_headers.update(self.headers)

    async def on_end(self, token: None, ctx: RequestContext[Any, Any], error: Exception | None, /) -> None:
        """Required of an interceptor."""


async def refusal(call: Coroutine[Any, Any, Any]) -> ConnectError:
    """Return the error of a call that must be refused."""
    with pytest.raises(ConnectError) as caught:
        await call
    return caught.value


async def refusal_code(call: Coroutine[Any, Any, Any]) -> Code:
    return (await refusal(call)).code
