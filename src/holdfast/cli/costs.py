"""What a job cost, for people and for programs."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.cost import RATE, Cost, check_rate, cost_of
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.explain import span
from holdfast.core.job import Job
from holdfast.sdk.settings import Given, chosen


def rate_of(given: Given | None) -> float:
    """USD for an hour: what is set, or the default. `Invalid` names the place to correct."""
    if given is None:
        return RATE
    try:
        return check_rate(str(given.value))
    except Invalid as error:
        raise Invalid(f"{given.place}: {error.message}") from error


def cost_by(history: Sequence[Event], now: datetime) -> Cost:
    """The cost of a job with this history, at the rate that is set."""
    return cost_of(history, now, rate=rate_of(chosen("cost_per_hour")))


def cost_words(job: Job, cost: Cost) -> str | None:
    """Such as: 0.02 USD (12 min at 0.10 USD/h). None before anybody has had the job."""
    if not job.fencing_token:
        return None
    dollars = "under 0.01" if 0 < cost.dollars < 0.005 else f"{cost.dollars:,.2f}"
    return f"{dollars} USD ({span(timedelta(seconds=cost.seconds))} at {cost.rate:,.2f} USD/h)"


def cost_fields(cost: Cost) -> dict[str, object]:
    """What `--json` says of it."""
    return {"cost_seconds": round(cost.seconds, 3), "cost_dollars": round(cost.dollars, 6)}
