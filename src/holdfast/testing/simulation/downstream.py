"""A resource that jobs write to. It compares tokens with the highest it has seen, and trusts nobody."""

from holdfast.ports import Grant
from holdfast.testing.simulation.audit import Book
from holdfast.testing.simulation.loop import NODE


class Downstream:
    """Keeps what was written under each key. I10: accepted tokens never go down."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._highest: dict[str, int] = {}
        self.accepted: dict[str, list[int]] = {}
        self.refused = 0

    def write(self, grant: Grant) -> bool:
        """A side effect of the holder of this grant; whether it was let in."""
        if not NODE.get().alive:
            return False
        witness, token = self._book.witness, grant.fencing_token
        key = grant.job.spec.lock or grant.job_id
        if not self.allows(key, token):
            self.refused += 1
            owner = self._book.token_at(grant.job_id, 10**9) == token
            words = f"{grant.job_id}: its owner's token {token} was refused at {key}"
            witness.expect("I10", not owner, words)
            return False
        accepted = self.accepted.setdefault(key, [])
        words = f"{key}: accepted token {token} after {accepted[-1:]}"
        witness.expect("I10", not accepted or token >= accepted[-1], words)
        accepted.append(token)
        self._highest[key] = max(self._highest.get(key, 0), token)
        return True

    def allows(self, key: str, token: int) -> bool:
        return token >= self._highest.get(key, 0)
