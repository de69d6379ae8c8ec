"""The reserve: descriptors that a worker holds back, so that one without any can still give its jobs back."""

import os

RESERVE_MAX = 4
"""As many as a few connections to the store need."""


class Reserve:
    """Some descriptors, held open. A worker frees them when its machine cannot run jobs: what it has to tell
    the store then may need another connection."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def take(self) -> None:
        """Hold them, as far as there are any."""
        try:
            while len(self._held) < RESERVE_MAX:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return  # there are none: then those that are held must do

    def free(self) -> None:
        while self._held:
            os.close(self._held.pop())
