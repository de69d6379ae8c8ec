"""Owners of before a restore: every live job is taken from them, under a token they cannot have had."""

from functools import partial

from holdfast.core.lifecycle import Change, Restore, decide
from holdfast.core.state import ENDED, State
from holdfast.failpoint import failpoint
from holdfast.ports import Filter, One, Store, Work

_PAGE = 500


async def shut_out(store: Store, op_id: str) -> int:
    """Take every live job from its owner; answers how many had one. Done twice, it only raises tokens."""
    live = Filter(states=tuple(state for state in State if state not in ENDED))
    cursor: str | None = None
    taken = 0
    while True:
        page = await store.list_jobs(live, after=cursor, limit=_PAGE)
        command = partial(decide, Restore(op_id=op_id))
        answers = await store.transact([Work(One(job.job_id), command) for job in page.jobs])
        failpoint("restore.owners_shut_out")
        for [decision] in answers:
            before = decision.before if isinstance(decision, Change) else None
            taken += before is not None and before.leased
        cursor = page.next
        if cursor is None:
            return taken
