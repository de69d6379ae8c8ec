"""Locks that are named after the arguments of a job."""

import enum
from typing import Any
from uuid import UUID

import pytest

from holdfast import App, Invalid


@pytest.mark.parametrize(
    ("lock", "arguments", "name"),
    [
        ("order-{order}", {"order": "a.b"}, "order-a.b"),
        ("{customer}.{order}", {"order": "7", "customer": 3}, "3.7"),
        ("{customer}", {"order": "7"}, "0"),
        ("all", {"order": "7"}, "all"),
    ],
)
def test_a_lock_is_named_after_arguments(lock: str, arguments: dict[str, Any], name: str) -> None:
    app = App()

    @app.job(lock=lock)
    def pay(order: str, customer: int | None = 0) -> None: ...

    assert pay.call(**arguments).spec.lock == name
    assert pay.configure(queue="x").call(**arguments).spec.lock == name
    assert pay.configure(lock="plain").call(**arguments).spec.lock == "plain"
    assert pay.configure(lock=None).call(**arguments).spec.lock is None
    assert pay.configure(lock="of-{order}").call(**arguments).spec.lock == f"of-{arguments['order']}"


def test_a_value_that_is_written_as_text_is_part_of_a_name_without_an_annotation_too() -> None:
    app = App()

    @app.job(lock="{order}")
    def pay(order): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    assert pay.call(UUID(int=7)).spec.lock == "00000000-0000-0000-0000-000000000007"
    with pytest.raises(Invalid, match="it is text or a whole number"):
        pay.call((1, 2))


@pytest.mark.parametrize("arguments", [{"order": "a b"}, {"order": ""}, {"order": "7", "customer": None}])
def test_an_argument_that_cannot_be_part_of_a_name_is_refused(arguments: dict[str, Any]) -> None:
    app = App()

    @app.job(lock="{order}{customer}" if "customer" in arguments else "{order}")
    def pay(order: str, customer: int | None = 0) -> None: ...

    with pytest.raises(Invalid, match="pay: "):
        pay.call(**arguments)


@pytest.mark.parametrize(
    "lock",
    [
        "a b {order}",
        "{{{order}}}",
        "{",
        "{}",
        "{nobody}",
        "{order.x}",
        "{order:>9}",
        "{order!r}",
        "{0}",
    ],
)
def test_a_pattern_that_names_no_argument_is_refused(lock: str) -> None:
    def pay(order: str) -> None: ...

    with pytest.raises(Invalid, match="pay: lock"):
        App().job(lock=lock)(pay)


def test_a_default_that_the_lock_names_is_given_with_the_job() -> None:
    """The code that runs the job may have another default by then."""
    app = App()

    @app.job(lock="account-{account}")
    def pay(order: int, account: int = 1, cents: int = 5) -> None: ...

    assert bytes(pay.call(7).spec.payload) == b'{"account":1,"order":7}'
    assert bytes(pay.call(7, 2).spec.payload) == b'{"account":2,"order":7}'
    assert bytes(pay.call(order=7, account=3).spec.payload) == b'{"account":3,"order":7}'


def test_a_lock_is_named_after_what_is_stored() -> None:
    class Colour(enum.StrEnum):
        RED = "r"

    app = App()

    @app.job(lock="{colour}")
    def paint(colour: Colour) -> None: ...

    @app.job(lock="{wet}")
    def dry(wet: bool) -> None: ...

    assert paint.call(Colour.RED).spec.lock == "r"
    with pytest.raises(Invalid, match="wet is part of the lock's name"):
        dry.call(True)
