"""Verbs that are derived from the table: the server checks the caller, and calls the registry with the
fields of the request."""

from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any

from msgspec import NODEFAULT, structs

from holdfast.core.job import Job
from holdfast.registry.local import LocalRegistry
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.server.verbs.access import actor_of, find, job_response
from holdfast.wire.responses import JobResponse
from holdfast.wire.verbs import VERBS, Caller, Verb


def derive_handler(context: ServerContext, verb: Verb) -> Callable[[Any], Awaitable[JobResponse]]:
    """Return the handler of a verb that has a `caller`. Fields that are not set are left to the defaults of
    the registry."""
    defaults = {one.name: _default(one) for one in structs.fields(verb.request.value)}
    del defaults["task_token" if verb.caller is Caller.OWNER else "job_id"]

    def call(*given: object, **fields: object) -> Awaitable[Job]:
        result: Awaitable[Job] = getattr(context.registry, verb.name)(*given, **fields)
        return result

    def given(request: Any) -> dict[str, Any]:  # noqa: ANN401
        fields = ((name, getattr(request, name)) for name in defaults)
        return {name: value for name, value in fields if value != defaults[name]}

    async def for_submitter(request: Any) -> JobResponse:  # noqa: ANN401
        job = await find(context.registry, request.job_id)
        admission.find_cancellable(current_principal.get(), job, request.job_id)
        fields = given(request) | {"actor": actor_of(request.actor)}
        return job_response(await call(request.job_id, **fields))

    async def for_owner(request: Any) -> JobResponse:  # noqa: ANN401
        grant = await context.grants.open(request.task_token)
        return JobResponse(await call(grant, **given(request)))

    return for_owner if verb.caller is Caller.OWNER else for_submitter


def _default(one: structs.FieldInfo) -> object:
    return one.default if one.default_factory is NODEFAULT else one.default_factory()


def _check(verb: Verb) -> None:
    """Raise `TypeError` unless the fields of the request are the parameters of the registry's method."""
    fields = {one.replace("task_token", "grant") for one in verb.request.value.__struct_fields__}
    [_, *parameters] = signature(getattr(LocalRegistry, verb.name)).parameters
    if wrong := fields ^ {*parameters}:
        raise TypeError(f"{verb.name}: its request and its method differ: {', '.join(wrong)}.")


for _verb in VERBS:
    if _verb.caller is not None:
        _check(_verb)
