"""Locks join jobs of many queues: which of them holds one is told to those who may know of it."""

from msgspec.structs import replace

from holdfast.core.job import Resource
from holdfast.ports import Registry
from holdfast.server import admission
from holdfast.server.calls import who


async def shown_resource(registry: Registry, key: str) -> Resource:
    """The lock as the caller may see it: of a holder out of reach, not who it is; of a name that others
    have chosen, not how often it was held."""
    resource = await registry.resource(key)
    if resource.holder is not None:
        [job] = await registry.get_many([resource.holder])
        if job is not None and admission.sees(who.get(), job):
            return resource
    if admission.owns_name(who.get(), key):
        return replace(resource, holder=None)
    return Resource(key)


async def discreet(registry: Registry, lock: str | None, text: str) -> str:
    """A sentence about a job with this lock, without the holder if the caller may not know of it."""
    if lock is None or lock not in text:
        return text
    holder = (await registry.resource(lock)).holder
    if holder is None or (await shown_resource(registry, lock)).holder is not None:
        return text
    return f"Lock {lock} is held by a job out of your reach; it gets its turn when that has ended."
