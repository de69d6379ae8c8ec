"""A resource that jobs write to. It refuses a token that is lower than the highest it has seen."""

from holdfast.ports import Grant
from holdfast.testing.simulation.checked_registry import AnswerLog
from holdfast.testing.simulation.loop import NODE


class Downstream:
    """The tokens that were accepted by key. I10: they never go down."""

    def __init__(self, log: AnswerLog) -> None:
        self._log = log
        self._highest: dict[str, int] = {}
        self.accepted: dict[str, list[int]] = {}
        self.refused = 0

    def write(self, grant: Grant) -> bool:
        """Write as the holder of this grant; return whether that was accepted."""
        if not NODE.get().alive:
            return False
        checker, token = self._log.checker, grant.fencing_token
        key = grant.job.spec.lock or grant.job_id
        if not self.allows(key, token):
            self.refused += 1
            owner = self._log.token_at(grant.job_id, 10**9) == token
            words = f"{grant.job_id}: its owner's token {token} was refused at {key}"
            checker.expect("I10", not owner, words)
            return False
        accepted = self.accepted.setdefault(key, [])
        words = f"{key}: accepted token {token} after {accepted[-1:]}"
        checker.expect("I10", not accepted or token >= accepted[-1], words)
        accepted.append(token)
        self._highest[key] = max(self._highest.get(key, 0), token)
        return True

    def allows(self, key: str, token: int) -> bool:
        return token >= self._highest.get(key, 0)
