"""keys: made once, told in the log, revoked for good; the text is never kept."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.access import Key, Scope, key_accepts
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, Exhausted, Invalid, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.limits import KEY_LIFE_DEFAULT
from holdfast.ports import Clock, Ids, Store
from holdfast.registry import keys
from holdfast.stores.memory import MemoryStore
from holdfast.testing.world import World, open_world
from tests.conftest import sqlite_store

DAY = timedelta(days=1)


async def create(world: World, name: str = "ci", **more: object) -> tuple[Key, str]:
    scopes = [Scope.SUBMIT, Scope.WORK]
    return await world.registry.create_key(
        **{"name": name, "scopes": scopes, "actor": "user:ana", **more}  # type: ignore[arg-type]
    )


async def all_events(world: World) -> list[Event]:
    return [*(await world.registry.events()).events]


async def test_a_key_is_kept_as_it_was_asked_for_and_its_text_opens_it(world: World) -> None:
    world.clock.advance(5)
    key, text = await create(world, queues=["reports-*"], regions=["eu"], life=30 * DAY)

    assert await world.registry.list_keys() == [key]
    assert (key.name, key.scopes) == ("ci", (Scope.SUBMIT, Scope.WORK))
    assert (key.queues, key.regions, key.created_by) == (("reports-*",), ("eu",), "user:ana")
    assert (key.created_at, key.expires_at) == (world.clock.now(), world.clock.now() + 30 * DAY)
    [kept] = await world.store.list_keys()
    assert key_accepts(kept, text, world.clock.now())


async def test_a_key_is_for_everything_and_ninety_days_unless_said_otherwise(world: World) -> None:
    key, _ = await create(world)

    assert (key.queues, key.regions) == (("*",), ())
    assert key.expires_at - key.created_at == KEY_LIFE_DEFAULT == 90 * DAY


async def test_no_two_keys_are_the_same(world: World) -> None:
    (one, first), (other, second) = await create(world), await create(world)

    assert one.key_id != other.key_id
    assert first != second
    kept = {key.key_id: key for key in await world.store.list_keys()}
    assert not key_accepts(kept[one.key_id], second, world.clock.now())


async def test_a_repeat_makes_no_second_key_and_names_the_first(world: World) -> None:
    key, text = await create(world, op_id="key-1")

    with pytest.raises(Conflict, match=key.key_id) as refused:
        await create(world, op_id="key-1")

    assert text not in refused.value.message
    assert len(await world.registry.list_keys()) == len(await all_events(world)) == 1
    mine, _ = await create(world, op_id="key-1", actor="user:somebody-else")
    assert mine.key_id != key.key_id


async def test_what_happens_to_a_key_is_in_the_log_without_its_text(world: World) -> None:
    key, text = await create(world, queues=["a*"], regions=["eu"])
    world.clock.advance(60)
    await world.registry.revoke_key(key.key_id, actor="user:bo")

    events = await all_events(world)

    created, revoked = events
    assert [e.event_type for e in events] == ["key_created", "key_revoked"]
    assert [e.event_id.removeprefix(f"key/{key.key_id}/") for e in events] == [
        "created",
        "revoked",
    ]
    assert [e.actor for e in events] == ["user:ana", "user:bo"]
    assert revoked.occurred_at - created.occurred_at == timedelta(seconds=60)
    assert revoked.received_at == world.clock.now()
    for event in events:
        assert event.event_class is EventClass.EXTERNAL
        assert event.job_id is None
        assert event.attributes == {
            "name": "ci",
            "key_id": key.key_id,
            "scopes": ["submit", "work"],
            "queues": ["a*"],
            "regions": ["eu"],
        }
        [kept] = await world.store.list_keys()
        assert kept.digest not in repr(event)
        assert text.split("_", 2)[2] not in repr(event)


async def test_a_name_has_two_keys_and_a_third_when_one_is_revoked_or_has_expired(
    world: World,
) -> None:
    first, _ = await create(world, life=2 * DAY)
    world.clock.advance(1)
    second, _ = await create(world)
    await create(world, "other")
    with pytest.raises(Exhausted, match=f"Revoke one .* revoke {first.key_id}"):
        await create(world)
    assert len(await world.registry.list_keys()) == len(await all_events(world)) == 3

    await world.registry.revoke_key(second.key_id, actor="user:ana")
    await create(world)
    with pytest.raises(Exhausted):
        await create(world)
    world.clock.advance(days=2)
    await create(world)


async def test_a_store_has_so_many_keys_that_count_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "KEYS_MAX", 3)

    made = [(await create(world, f"n{n}"))[0] for n in range(3)]
    with pytest.raises(Exhausted, match=r"3 keys are active already\. Revoke some"):
        await create(world, "more")

    await world.registry.revoke_key(made[1].key_id, actor="user:ana")
    await create(world, "more")


async def test_revoking_is_for_good_and_a_repeat_changes_nothing(world: World) -> None:
    key, text = await create(world)
    world.clock.advance(10)
    revoked = await world.registry.revoke_key(key.key_id, actor="user:ana")
    world.clock.advance(10)

    again = await world.registry.revoke_key(key.key_id, actor="user:bo")

    assert again == revoked
    assert revoked.revoked_at == key.created_at + timedelta(seconds=10)
    assert await world.registry.list_keys() == [revoked]
    assert not key_accepts(revoked, text, world.clock.now())
    assert [(e.event_type, e.actor) for e in await all_events(world)] == [
        ("key_created", "user:ana"),
        ("key_revoked", "user:ana"),
    ]


async def test_the_whole_text_names_a_key_as_well(world: World) -> None:
    key, text = await create(world)

    assert (await world.registry.revoke_key(text, actor="user:ana")).key_id == key.key_id


async def test_an_unknown_key_is_not_found_and_its_text_is_not_repeated(world: World) -> None:
    key, text = await create(world)
    stranger = text.replace(key.key_id, "0" * 12)

    with pytest.raises(NotFound, match="There is no key '000000000000'") as refused:
        await world.registry.revoke_key(stranger, actor="user:ana")

    assert text.split("_", 2)[2] not in str(refused.value)
    assert await world.registry.list_keys() == [key]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a b"},
        {"scopes": []},
        {"scopes": ["root"]},
        {"queues": ["a?"]},
        {"queues": []},
        {"regions": ["e u"]},
        {"life": timedelta()},
        {"life": timedelta.max},
        {"actor": "ana"},
    ],
)
async def test_what_no_key_can_be_is_invalid_and_nothing_is_written(
    world: World, wrong: dict[str, object]
) -> None:
    with pytest.raises(Invalid):
        await create(world, **wrong)  # type: ignore[arg-type]

    assert await world.registry.list_keys() == []
    assert await all_events(world) == []


async def test_who_revokes_must_say_who_they_are(world: World) -> None:
    key, _ = await create(world)
    with pytest.raises(Invalid, match="needs a kind and a name"):
        await world.registry.revoke_key(key.key_id, actor="")

    assert await world.registry.list_keys() == [key]


class NoEvents(MemoryStore):
    """A store that keeps keys and, while `mute`, takes no events."""

    refuses = True

    async def record(self, events: Sequence[Event]) -> int:
        if self.refuses:
            raise Unavailable("It takes no events: a test says so.")
        return await super().record(events)


async def no_events_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return NoEvents(clock, ids)


async def test_a_key_that_could_not_be_told_of_is_not_handed_out_and_may_be_there(
    tmp_path: Path,
) -> None:
    async with open_world(no_events_store, tmp_path) as world:
        with pytest.raises(Unavailable) as failed:
            await create(world)

        assert failed.value.applied == "unknown"
        assert len(await world.registry.list_keys()) == 1


async def test_a_revocation_that_could_not_be_told_of_holds_and_a_repeat_tells(
    tmp_path: Path,
) -> None:
    async with open_world(no_events_store, tmp_path) as world:
        store = world.store
        assert isinstance(store, NoEvents)
        store.refuses = False
        key, text = await create(world)
        store.refuses = True
        with pytest.raises(Unavailable) as failed:
            await world.registry.revoke_key(key.key_id, actor="user:ana")
        [kept] = await world.registry.list_keys()
        assert failed.value.applied == "unknown"
        assert not key_accepts(kept, text, world.clock.now())
        store.refuses = False
        world.clock.advance(60)

        assert await world.registry.revoke_key(key.key_id, actor="user:ana") == kept

        assert [e.event_type for e in await all_events(world)] == ["key_created", "key_revoked"]
        assert (await all_events(world))[1].occurred_at == kept.revoked_at


async def test_two_who_revoke_at_once_make_one_event(world: World) -> None:
    key, _ = await create(world)
    who = [f"user:n{n}" for n in range(5)]

    await asyncio.gather(*(world.registry.revoke_key(key.key_id, actor=a) for a in who))

    assert [e.event_type for e in await all_events(world)] == ["key_created", "key_revoked"]
    assert [kept.revoked_at for kept in await world.registry.list_keys()] == [world.clock.now()]


async def test_the_secret_reaches_no_file(tmp_path: Path) -> None:
    made: list[tuple[Key, str]] = []

    def search() -> None:
        written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert made[0][0].digest.encode() in written
        assert made[0][1].split("_", 2)[2].encode() not in written

    async with open_world(sqlite_store, tmp_path) as world:
        made.append(await create(world))
        await world.registry.revoke_key(made[0][0].key_id, actor="user:ana")
        search()
    search()
