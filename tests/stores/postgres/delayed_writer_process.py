"""A process whose claim lies written and uncommitted for a while: `url queue seconds`."""

import asyncio
import sys
import time
from functools import partial

from holdfast.core.lifecycle import Claim, decide
from holdfast.failpoint import arm
from holdfast.ports import Ready, Work
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds


async def main(url: str, queue: str, seconds: float) -> None:
    def hook(name: str) -> None:
        if name == "postgres.written":
            time.sleep(seconds)  # the whole process stands still, as a frozen one does

    store = await PostgresStore.open(url, ids=SystemIds())
    arm(hook)
    claim = Claim(op_id="delayed", owner="late", actor="worker:late")
    ready = Ready(op_id="delayed", queues=(queue,))
    await store.transact([Work(ready, partial(decide, claim))])
    arm(None)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
