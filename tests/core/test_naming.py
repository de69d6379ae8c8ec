"""Derived ids: the same parts always give the same name, and different ones another."""

from uuid import UUID

from holdfast.core.limits import check_id
from holdfast.core.naming import derived_id


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
