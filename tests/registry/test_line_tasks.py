"""The line on loops that begin tasks at once, as Python 3.12 can."""

import asyncio

from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.sdk.open import open_registry


def test_writes_are_answered_where_tasks_begin_at_once() -> None:
    async def body() -> None:
        eager = getattr(asyncio, "eager_task_factory", None)
        asyncio.get_running_loop().set_task_factory(eager)
        registry = await open_registry("memory://")
        for n in range(3):
            request = Request(spec=Spec(), job_id=f"job-{n}")
            await asyncio.wait_for(registry.enqueue(request, actor="user:ana"), 20)
        await registry.close()

    asyncio.run(body())
