"""A process that opens a store: `url [failpoint]`; at the failpoint it is killed -9."""

import asyncio
import os
import signal
import sys

from holdfast.failpoint import arm
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds


async def main(url: str, place: str) -> None:
    def hook(name: str) -> None:
        if name == place:
            os.kill(os.getpid(), signal.SIGKILL)

    arm(hook)
    store = await PostgresStore.open(url, ids=SystemIds())
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
