"""Locks join jobs of many queues: which of them holds one is told to those who may know of it."""

from msgspec.structs import replace

from holdfast.core.job import Resource
from holdfast.core.visibility import sees_all
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


_NAMING = (("resource lock {}, held by job ", " ("), ("Resource {} is locked by job ", "."))
"""What stands before and behind the holder of a lock, in `why` and in a refusal to acquire."""


async def discreet(registry: Registry, lock: str | None, text: str) -> str:
    """A sentence about a job with this lock, without the holder if the caller may not know of it. Who holds
    it now may not be who did when the sentence was made."""
    named = [(before.format(lock), behind) for before, behind in _NAMING]
    if lock is None or sees_all(who.get()) or not any(before in text for before, _ in named):
        return text
    holder = (await shown_resource(registry, lock)).holder
    if holder is not None and any(before + holder + behind in text for before, behind in named):
        return text
    return f"Lock {lock} is held by a job out of your reach; it gets its turn when that has ended."
