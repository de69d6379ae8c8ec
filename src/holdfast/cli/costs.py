"""What a job cost, for people and for programs."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.cost import RATE, Cost, cost_of, parse_rate
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.explanation import format_duration
from holdfast.core.job import Job
from holdfast.sdk.settings import Setting, read_setting


def rate_of(given: Setting | None) -> float:
    """Return USD per hour: the setting, or the default. Raise `Invalid` that names the place to correct."""
    if given is None:
        return RATE
    try:
        return parse_rate(str(given.value))
    except Invalid as error:
        raise Invalid(f"{given.place}: {error.message}") from error


def job_cost(history: Sequence[Event], now: datetime) -> Cost:
    """Return the cost of a job with this history, at the rate that is set."""
    return cost_of(history, now, rate=rate_of(read_setting("cost_per_hour")))


def cost_words(job: Job, cost: Cost) -> str | None:
    """Return such as `0.02 USD (12 min at 0.10 USD/h)`; None before the first claim."""
    if not job.fencing_token:
        return None
    dollars = "under 0.01" if 0 < cost.dollars < 0.005 else f"{cost.dollars:,.2f}"
    return f"{dollars} USD ({format_duration(timedelta(seconds=cost.seconds))} at {cost.rate:,.2f} USD/h)"


def cost_fields(cost: Cost) -> dict[str, object]:
    """Return the cost as fields of `--json`."""
    return {"cost_seconds": round(cost.seconds, 3), "cost_dollars": round(cost.dollars, 6)}
