"""`holdfast keys`: create, list and revoke API keys."""

import json
from pathlib import Path

import apsw
import pytest

from holdfast.core.access import Key, Scope, key_accepts, key_id_of
from tests.cli.command_line import CommandLine

SCHEMA_3 = Path(__file__).parents[1] / "stores" / "sqlite" / "schema_3.sql"


def kept(cli: CommandLine) -> list[Key]:
    return cli.registry(lambda registry: registry.list_keys())


def create(cli: CommandLine, name: str = "ci", may: str = "submit", *options: str) -> str:
    return cli.run("keys", "create", name, "--may", may, *options).stdout.strip()


def test_create_prints_the_key_alone_and_says_beside_it_what_to_do_with_it(
    cli: CommandLine,
) -> None:
    result = cli.run("keys", "create", "ci", "--may", "submit")

    [key] = kept(cli)
    text = result.stdout.removesuffix("\n")
    assert key_id_of(text) == key.key_id
    assert key_accepts(key, text, key.created_at)
    assert text not in result.stderr
    for words in ("shown only once", "HOLDFAST_KEY", "HOLDFAST_KEY_FILE", "Authorization: Bearer"):
        assert words in result.stderr


def test_create_takes_every_option(cli: CommandLine) -> None:
    options = "--queue reports-* -q mail --region eu --region us --expires 30d"
    create(cli, "reports", "observe:data, work", *options.split())

    [key] = kept(cli)
    assert (key.name, key.scopes) == ("reports", (Scope.DATA, Scope.WORK))
    assert (key.queues, key.regions) == (("reports-*", "mail"), ("eu", "us"))
    assert (key.expires_at - key.created_at).days == 30
    assert key.created_by.startswith("user:")


def test_create_and_list_as_json_show_everything_but_the_digest(cli: CommandLine) -> None:
    made = json.loads(cli.run("keys", "create", "ci", "--may", "work", "--json").stdout)
    [listed] = json.loads(cli.run("keys", "list", "--json").stdout)["keys"]

    [key] = kept(cli)
    assert key_accepts(key, made.pop("key"), key.created_at)
    assert made == listed
    assert set(listed) == {*Key.__struct_fields__} - {"digest"}
    assert (listed["scopes"], listed["regions"], listed["revoked_at"]) == (["work"], [], None)


def test_list_shows_what_each_key_is_for_and_when_it_ends(cli: CommandLine) -> None:
    create(cli, "soon", "submit,work", "-q", "a*", "-q", "b", "--region", "eu", "--expires", "3h")
    create(cli, "later", "admin", "--expires", "12d")
    create(cli, "past", "observe", "--expires", "1ms")
    cli.run("keys", "revoke", create(cli, "gone", "work"))

    header, *lines = cli.run("keys", "list").stdout.splitlines()

    ids = [key.key_id for key in kept(cli)]
    assert header.split() == ["KEY", "NAME", "MAY", "QUEUES", "REGIONS", "EXPIRES"]
    assert [" ".join(line.split()) for line in lines] == [
        f"{ids[0]} soon submit,work a*,b eu in 3.0 h",
        f"{ids[1]} later admin * - in 12 days",
        f"{ids[2]} past observe * - expired",
        f"{ids[3]} gone work * - revoked",
    ]


def test_list_without_keys_says_how_to_make_one(cli: CommandLine) -> None:
    cli.submit()
    result = cli.run("keys", "list")

    assert result.stdout == ""
    assert "holdfast keys create" in result.stderr
    assert json.loads(cli.run("keys", "list", "--json").stdout) == {"keys": []}


def test_revoke_ends_a_key_and_may_be_repeated(cli: CommandLine) -> None:
    key_id = key_id_of(create(cli)) or ""

    first, again = (cli.run("keys", "revoke", key_id).stdout for _ in range(2))

    [key] = kept(cli)
    assert key.revoked_at is not None
    assert first == again
    assert first.startswith(f"Key {key_id} of ci is revoked, since ")


def test_an_unknown_key_is_told_with_the_way_to_the_known_ones(cli: CommandLine) -> None:
    create(cli)
    error = cli.run("keys", "revoke", "nobody", code=3).stderr

    assert error == "Error: There is no key 'nobody'.\nSee them all: holdfast keys list\n"


def test_a_third_key_of_a_name_is_refused_with_the_one_to_revoke(cli: CommandLine) -> None:
    first = key_id_of(create(cli))
    create(cli)

    result = cli.run("keys", "create", "ci", "--may", "work", code=5)

    assert f"holdfast keys revoke {first}" in result.stderr
    assert result.stdout == ""
    assert len(kept(cli)) == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["ci"], "Missing option '--may'"),
        (["ci", "--may", "submit,root"], "'root' is not a scope. There are: submit, work"),
        (["ci", "--may", ""], "is not a scope"),
        (["c i", "--may", "work"], "may only contain"),
        (["ci", "--may", "work", "--expires", "30"], "needs a unit here; write 90s"),
        (["ci", "--may", "work", "--expires", "367d"], "366 days at most"),
        (["ci", "--may", "work", "-q", "a b"], "names no queues"),
    ],
)
def test_what_no_key_can_be_is_refused_in_words(cli: CommandLine, wrong: list[str], words: str) -> None:
    assert words in cli.run("keys", "create", *wrong, code=2).stderr


def test_looking_makes_no_store_and_making_a_key_does(cli: CommandLine) -> None:
    cli.run("keys", "list", code=3)
    cli.run("keys", "revoke", "x", code=3)
    assert not cli.file.exists()

    create(cli)

    assert cli.file.exists()


def test_a_backup_and_what_is_restored_from_it_have_the_keys(cli: CommandLine, tmp_path: Path) -> None:
    create(cli)
    cli.run("keys", "revoke", create(cli))
    before = kept(cli)
    cli.run("backup", str(tmp_path / "copy.db"))
    create(cli, "later")

    cli.run("restore", str(tmp_path / "copy.db"), "--force")

    assert kept(cli) == before
    assert [key.revoked_at is None for key in before] == [True, False]


def test_a_store_of_before_there_were_keys_gets_them(cli: CommandLine) -> None:
    connection = apsw.Connection(str(cli.file))
    connection.execute(SCHEMA_3.read_text(encoding="utf-8")).fetchall()
    connection.execute("DROP TABLE api_key; DROP INDEX job_rare").fetchall()
    connection.execute("CREATE INDEX job_dead_lettered ON job (seq)").fetchall()
    connection.pragma("user_version", 1)
    connection.close()

    create(cli)

    assert len(kept(cli)) == 1
    assert "delayed" in cli.run("status", "delayed").stdout


def test_what_was_done_with_keys_is_in_the_events(cli: CommandLine) -> None:
    text = create(cli)
    cli.run("keys", "revoke", text)

    lines = cli.run("events").stdout

    assert "key_created" in lines
    assert "key_revoked" in lines
    assert text.split("_", 2)[2] not in lines
