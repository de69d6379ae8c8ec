"""Derived ids: the same parts always give the same name, and different ones another."""

from uuid import UUID

from holdfast.core.derived_ids import derived_id
from holdfast.core.limits import check_id


def test_a_derived_id_is_a_valid_version_8_uuid_and_never_changes() -> None:
    made = derived_id("default", "order-7")

    assert made == derived_id("default", "order-7")
    assert check_id(made, "job_id") == made
    assert UUID(made).version == 8


def test_other_parts_or_other_cuts_give_other_ids() -> None:
    ids = {
        derived_id("a", "b"),
        derived_id("b", "a"),
        derived_id("ab"),
        derived_id("a", "", "b"),
        derived_id("a", "b", "c"),
    }

    assert len(ids) == 5


def test_a_request_means_the_same_job_in_every_version_of_holdfast() -> None:
    assert derived_id("default", "order-7") == "6b5face9-b4b7-81fc-bcba-775bf0c77de5"
    assert derived_id("default", "order-9") == "1f76bdd9-7f3c-8e54-b650-fe5209e8b338"
    assert derived_id("a", "b") == "575aa622-20a2-8597-b5de-f8d269b6acac"
    assert derived_id("replay", "job-1", "1") == "9467be0d-e611-8157-bee9-ca49a7f9376d"
