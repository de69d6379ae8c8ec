"""An app for the command `holdfast enqueue`: functions with parameters of many types."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum

import holdfast

app = holdfast.App()
other = holdfast.App()


class Fit(Enum):
    COVER = "cover"
    INSIDE = "inside"


@dataclass
class Box:
    left: int
    right: int


@app.job(queue="images", max_failures=3)
def resize(
    ctx: holdfast.Context, path: str, width: int = 100, *, fit: Fit = Fit.COVER, dry_run: bool = False
) -> str:
    """Make a picture smaller.

    The picture stays where it is.
    """
    return f"{path} {width}"


@app.job
def add(left: int, right: int) -> int:
    return left + right


@app.job(kind="report", version=2)
def monthly(day: date, price: Decimal | None = None, tags: list[str] | None = None) -> None: ...


@app.job
def crop(box: Box, boxes: list[Box] | None = None, extra: dict[str, int] | None = None) -> None: ...


@app.job
def untyped(one, two=None) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


@other.job(kind="add")
def add_elsewhere(number: float) -> float:
    return number


@app.job(lock="pay-{order}")
def pay(order: int, queue: str = "mail") -> None: ...


def plain() -> None: ...
