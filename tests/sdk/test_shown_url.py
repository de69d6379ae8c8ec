"""URLs are shown without what opens a door."""

import pytest

from holdfast.sdk.open import shown_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:SECRET@host/jobs",
        "postgresql://ana:a@SECRET@host/jobs",
        "postgresql://ana:a/SECRET@host/jobs",
        "postgresql://ana:a?SECRET@host/jobs",
        "postgresql://ana@host/jobs?password=SECRET",
        "postgresql://ana@host/jobs?x=1&PassWord=SECRET&y=2",
        "postgresql://host/jobs?sslpassword=SECRET",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    shown = shown_url(url)

    assert "SECRET" not in shown
    assert "host/jobs" in shown


@pytest.mark.parametrize(
    "url",
    ["sqlite:///jobs.db", "http://one:8080,two:8080", "postgresql://ana@h:5432/d?sslmode=require"],
)
def test_what_has_no_password_is_shown_as_it_is(url: str) -> None:
    assert shown_url(url) == url
