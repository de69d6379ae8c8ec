"""What `help()` and a notebook show of functions that take options."""

import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, AsyncClient, Client, command
from holdfast.sdk.async_client import ListOptions
from holdfast.sdk.job_function import JobOptions
from holdfast.sdk.job_options import CommandOptions, DecoratorOptions, Options
from tests.sdk.sample_jobs import add

app = App("memory://")
SHOWN: list[tuple[Callable[..., Any], type]] = [
    (app.job, DecoratorOptions),
    (app.job(add).configure, JobOptions),
    (Client.enqueue, Options),
    (AsyncClient.enqueue, Options),
    (Client.submit, CommandOptions),
    (AsyncClient.submit, CommandOptions),
    (command, CommandOptions),
    (Client.list, ListOptions),
    (AsyncClient.list, ListOptions),
]


@pytest.mark.parametrize(("function", "options"), SHOWN)
def test_a_signature_has_every_option_as_a_parameter(function: Callable[..., Any], options: type) -> None:
    parameters = inspect.signature(function).parameters

    assert options.__annotations__.keys() <= parameters.keys()
    assert not [one for one in parameters.values() if one.kind is inspect.Parameter.VAR_KEYWORD]
    for name, hint in options.__annotations__.items():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].annotation == hint


def test_help_says_how_often_a_function_is_tried() -> None:
    text = " ".join(pydoc.plain(pydoc.render_doc(app.job)).replace("|", " ").split())

    assert "tried ten times, after waits of up to 5 s, 10 s, 20 s and so on, 15 minutes at most" in text


@pytest.mark.parametrize("shown", [app.job, app.job(kind="sum")(add).configure, Client.submit, command])
def test_help_shows_the_options_and_what_they_mean(shown: object) -> None:
    text = pydoc.plain(pydoc.render_doc(shown))

    assert "timeout: datetime.timedelta | float | str | None = ..." in text
    assert "Durations are a timedelta, seconds, or a text such as 5m or 1h30m" in text
    assert "**options" not in text
