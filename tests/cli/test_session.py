"""The actor that the command line acts for."""

import getpass

import pytest

from holdfast.core.limits import check_id
from holdfast.sdk.defaults import actor


def test_the_actor_is_a_safe_id(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("root", "Jörg Müller", "DOMAIN\\me", "x" * 300):
        monkeypatch.setattr(getpass, "getuser", lambda name=name: name)
        assert check_id(actor.__wrapped__(), "actor").startswith("user:")

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert actor.__wrapped__() == "user:unknown"
