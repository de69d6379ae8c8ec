"""What every program in Python shares: the verbs the frame asks for, the three handlers, the clients.

A program is `side.main(settings=..., setup=..., bulk=..., ...)`; its handlers call `count`, `waited` and
`hold` or `hold_async`. Words from the command line arrive as strings."""

import asyncio
import inspect
import json
import mmap
import os
import random
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(os.environ["PEERS_FOLDER"])
URL = os.environ["PEERS_URL"]
WORKER = os.environ.get("PEERS_WORKER", "w-0")
VARIANT = os.environ.get("PEERS_VARIANT", "")
LEASE = float(os.environ.get("PEERS_LEASE", "10"))
LOOK_SECONDS = 0.05
ASK_SECONDS = 0.005
WARM_UP = 20


class Counter:
    """How many jobs this process has begun, when the first and when the latest, in a mapped file."""

    def __init__(self):
        self._lock = threading.Lock()
        with (FOLDER / f"count-{os.getpid()}").open("w+b") as file:
            file.truncate(24)
            whole = memoryview(mmap.mmap(file.fileno(), 24))
        self._count, self._moments = whole.cast("q"), whole.cast("d")

    def add(self):
        now = time.monotonic()
        with self._lock:
            if not self._count[0]:
                self._moments[1] = now
            self._moments[2] = now
            self._count[0] += 1


_making = threading.Lock()
_counters = []
os.register_at_fork(after_in_child=_counters.clear)  # which counts in a file of its own


def count():
    """The whole of the `noop` handler."""
    if not _counters:
        with _making:
            _counters or _counters.append(Counter())
    _counters[0].add()


def waited(sent):
    """The whole of the `timed` handler; `sent` is what `now()` gave just before the enqueue."""
    _append(f"waits-{os.getpid()}", f"{(time.monotonic() - float(sent)) * 1000:.4f}")


def hold():
    """The whole of the `holds` handler: say that it began, then wait for the file `go`."""
    _held()
    while not (FOLDER / "go").exists():
        time.sleep(LOOK_SECONDS)


async def hold_async(beat=None):
    """The same; `beat` is for systems that ask the handler to say that it is alive."""
    _held()
    while not (FOLDER / "go").exists():
        await asyncio.sleep(LOOK_SECONDS)
        if beat:
            await beat()


def _held():
    line = {"worker": WORKER, "pid": os.getpid(), "at": time.monotonic()}
    _append("held.jsonl", json.dumps(line))


def _append(name, line):
    with (FOLDER / name).open("a") as file:
        file.write(line + "\n")


now = time.monotonic


def chunks(jobs, size):
    """Sizes that add up to `jobs`."""
    jobs = int(jobs)
    return [min(size, jobs - start) for start in range(0, jobs, size)]


async def bulk(sizes, enqueue_many):
    """`enqueue_many(size)` for each size; the first is the warm-up when there are more than three."""
    warm, spent = (1 if len(sizes) > 3 else 0), 0.0
    for n, size in enumerate(sizes):
        began = now()
        await _done(enqueue_many(size))
        spent += (now() - began) * (n >= warm)
    return {"seconds": spent, "count": sum(sizes[warm:])}


async def single(jobs, enqueue):
    """`enqueue()` again and again, after some to warm up. Plain functions and coroutines both do."""
    jobs = int(jobs)
    for _ in range(WARM_UP):
        await _done(enqueue())
    began = now()
    for _ in range(jobs):
        await _done(enqueue())
    return {"seconds": now() - began, "count": jobs}


async def clients(many, jobs, enqueue):
    """`many` tasks that each await `enqueue()` again and again."""
    many, each = int(many), max(1, int(jobs) // int(many))
    waits = []

    async def client(times):
        for _ in range(times):
            began = now()
            await enqueue()
            waits.append(now() - began)

    await asyncio.gather(*(client(1) for _ in range(many)))
    waits.clear()
    began = now()
    await asyncio.gather(*(client(each) for _ in range(many)))
    return _clients_answer(now() - began, waits)


def client_threads(many, jobs, enqueue):
    """`many` threads that each call `enqueue()` again and again, for clients that block."""
    many, each = int(many), max(1, int(jobs) // int(many))
    waits, gate = [], threading.Barrier(many + 1)

    def client():
        enqueue()
        gate.wait()
        for _ in range(each):
            began = now()
            enqueue()
            waits.append(now() - began)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(many)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = now()
    for thread in threads:
        thread.join()
    return _clients_answer(now() - began, waits)


def _clients_answer(seconds, waits):
    waits.sort()
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    return {"seconds": seconds, "count": len(waits), "p99_ms": p99 * 1000}


async def waits(times, enqueue):
    """`enqueue(sent)` now and then, where `sent` is the moment just before."""
    for _ in range(int(times)):
        await asyncio.sleep(random.uniform(0.03, 0.09))
        await _done(enqueue(now()))


def kept(make):
    """A function that answers what `await make()` gave the first time: one connection for a process."""
    made = []

    async def get():
        if not made:
            made.append(await make())
        return made[0]

    return get


async def _done(value):
    return await value if inspect.isawaitable(value) else value


def main(**verbs):
    """Do the verb of the command line and print its answer as JSON; null where there is no such verb."""
    name, *words = sys.argv[1:]
    if name == "lefts":
        verbs["lefts"] = lambda: _lefts(verbs["left"])
    answer = verbs[name](*words) if name in verbs else None
    if inspect.isawaitable(answer):
        answer = asyncio.run(_done(answer))
    print(json.dumps(answer), flush=True)


async def _lefts(left):
    """Say `ready`; after a line from the frame ask the store until nothing is left, and answer when it was
    asked. The moment of asking is at most one question too early."""
    await _done(left())
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    while True:
        asked = now()
        if not await _done(left()):
            return asked
        await asyncio.sleep(ASK_SECONDS)


def script(name, *words):
    """Become the command that comes with the system, found beside this Python."""
    command = str(Path(sys.executable).parent / name)
    os.execv(command, [command, *words])
