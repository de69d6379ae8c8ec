"""The span of an attempt: what it says of how the attempt ended."""

import pytest
from msgspec.structs import replace

from holdfast.core.job import Failure
from holdfast.core.limits import NOT_UNDERSTOOD_MAX
from holdfast.sdk.open import open_registry
from holdfast.worker import spans
from holdfast.worker.executor import Ending
from tests.worker.fake_runner import claim_job


class FakeSpan:
    """A span that keeps its attributes and its error."""

    def __init__(self) -> None:
        self.noted: list[object] = []

    def set_attributes(self, attributes: dict[str, object]) -> None:
        self.noted += attributes.values()

    def end(self, error: str | None = None) -> None:
        self.noted.append(error)


@pytest.mark.parametrize(
    ("times", "told"),
    [(0, ["released", None]), (NOT_UNDERSTOOD_MAX, ["failed", "Invalid"])],
)
async def test_the_span_of_a_job_that_is_given_back_for_other_code_is_no_failure(
    times: int, told: list[str | None]
) -> None:
    registry = await open_registry("memory://")
    hold = await claim_job(registry)
    hold.grant = replace(hold.grant, job=replace(hold.grant.job, not_understood=times))
    span = FakeSpan()
    hold.span = span  # type: ignore[assignment]
    failure = Failure(message="no argument gift", code="Invalid", not_understood=True)
    spans.end(hold, Ending(failure=failure))
    await registry.close()
    assert span.noted == told
