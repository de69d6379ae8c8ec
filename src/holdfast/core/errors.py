"""Errors, few and coarse: the class says what to do next, the message says what happened."""

from typing import Literal


class HoldfastError(Exception):
    """The root of every error of holdfast. `job_id` and `version` are set whenever a job is known; the
    correlation and the trace are for the log of a server, not for callers.

    Each class has an `advice`. An error with advice of its own has it at the end of its text.
    """

    advice = "Report this."
    correlation_id: str | None = None
    trace_id: str | None = None

    def __init__(
        self,
        message: str,
        *,
        job_id: str | None = None,
        version: int | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.job_id = job_id
        self.version = version
        if advice is not None:
            self.advice = advice

    @property
    def advised(self) -> bool:
        """Whether the advice belongs to this error, not to its class."""
        return self.advice != type(self).advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}" if self.advised else self.message


class Invalid(HoldfastError):
    """The request can never be accepted as it is."""

    advice = "Correct the request."


class NotFound(HoldfastError):
    """The job, key or other object does not exist."""

    advice = "Check the id; do not retry."


class Conflict(HoldfastError):
    """The job is not in a state that allows this."""

    advice = "Read the job again, then decide."


class Fenced(HoldfastError):
    """The caller is no longer the owner."""

    advice = "Stop work and discard the result."


class Exhausted(HoldfastError):
    """A limit is reached."""

    advice = "Back off, then try again."


class Denied(HoldfastError):
    """The caller has no right to do this."""

    advice = "Ask for the right."


class Unavailable(HoldfastError):
    """The store did not apply the request (`applied="no"`), or may have (`"unknown"`)."""

    advice = "Send the same request again, with the same op_id."
    public: str | None = None
    """What a server tells its clients in place of the message, which may name hosts and users."""

    def __init__(
        self,
        message: str,
        *,
        applied: Literal["no", "unknown"] = "no",
        job_id: str | None = None,
        version: int | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message, job_id=job_id, version=version, advice=advice)
        self.applied = applied


class Corrupt(HoldfastError):
    """The stored data contradicts itself. This is never expected."""

    advice = "Stop and call an operator."
