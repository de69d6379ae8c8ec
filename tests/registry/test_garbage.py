"""What commits leave behind: nothing that only a garbage collection would take away.

A server and a worker collect rarely, so a ring of references around a commit would keep all that it wrote.
"""

import gc

from holdfast.core.lifecycle import Success
from holdfast.testing.world import World, output

KINDS = ("Batch", "Commit", "Choice", "Event", "Work")


def counted() -> dict[str, int]:
    """What has been made since the freeze, and is still there."""
    ours = [type(one) for one in gc.get_objects() if type(one).__module__.startswith("holdfast.")]
    names = [one.__name__ for one in ours]
    return {kind: names.count(kind) for kind in KINDS}


async def life(world: World, job_id: str) -> None:
    await world.enqueue(job_id, lock=f"lock-{job_id}")
    grant = await world.claim()
    await world.registry.publish(grant, [output(1, world=world)])
    await world.registry.heartbeat(grant)
    await world.registry.complete(grant, Success())


async def test_a_commit_leaves_nothing_behind(world: World) -> None:
    for n in range(5):
        await life(world, f"warm-{n}")
    gc.disable()
    gc.freeze()
    try:
        for n in range(30):
            await life(world, f"job-{n}")
        grown = counted()
    finally:
        gc.unfreeze()
        gc.enable()

    assert all(more < 15 for more in grown.values()), grown
