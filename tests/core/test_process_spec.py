"""The payload of a command job: nothing that a process could not be started with."""

import pytest
from msgspec import Raw

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import check_id
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.process_spec import (
    HOLDFAST_COMMAND_KIND,
    ProcessSpec,
    check_process_spec,
    claim_kind,
    claim_kinds,
    decode_process_spec,
    encode_process_spec,
    exit_failure,
    holdfast_worker_reason,
    process_spec_of,
)
from holdfast.core.spec import COMMAND_KIND, JOB_V1_KIND, Spec

FULL = ProcessSpec(argv=("echo", "hi"), env={"A_1": "x"}, cwd="/tmp", secrets=("TOKEN",))


def test_a_command_has_no_terminal_unless_it_asks_for_one_and_then_an_ordinary_one() -> None:
    command = ProcessSpec(argv=("top",))

    assert (command.pty, command.rows, command.columns) == (False, 24, 80)


def test_a_command_comes_back_from_its_payload() -> None:
    assert decode_process_spec(encode_process_spec(FULL)) == FULL
    assert bytes(encode_process_spec(ProcessSpec(argv=("true",)))) == b'{"argv":["true"]}'


def test_an_argument_may_be_empty_and_as_long_as_the_limit() -> None:
    command = ProcessSpec(argv=("echo", "", "x" * 128 * 1024), rows=1, columns=65_535, memory_bytes=1)

    assert check_process_spec(command) is command


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (ProcessSpec(argv=()), "no command"),
        (ProcessSpec(argv=("",)), "no command"),
        (ProcessSpec(argv=("", "echo")), "no command"),
        (ProcessSpec(argv=("echo", "a\0b")), "NUL"),
        (ProcessSpec(argv=("echo",), cwd="a\0"), "NUL"),
        (ProcessSpec(argv=("echo",), env={"A": "\0"}), "NUL"),
        (ProcessSpec(argv=("echo",), env={"A\0": ""}), "NUL"),
        (ProcessSpec(argv=("echo", "\udcff")), "not UTF-8"),
        (ProcessSpec(argv=("echo", "x" * (128 * 1024 + 1))), "^An argument has 131,073 bytes"),
        (ProcessSpec(argv=("echo",), rows=0), "1 to 65,535"),
        (ProcessSpec(argv=("echo",), columns=65_536), "1 to 65,535"),
        (ProcessSpec(argv=("echo",), memory_bytes=0), "at least one byte"),
        (ProcessSpec(argv=("echo",), env={"1A": "x"}), "'1A' is not a name"),
        (ProcessSpec(argv=("echo",), env={"A=B": "x"}), "is not a name"),
        (ProcessSpec(argv=("echo",), secrets=("A B",)), "is not a name"),
        (ProcessSpec(argv=("echo",), secrets=("A\n",)), "is not a name"),
        (
            ProcessSpec(argv=("echo",), env=dict.fromkeys("HGFEDCBA", ""), secrets=(*"HGFEDCBA",)),
            "A is both",
        ),
    ],
)
def test_what_cannot_be_started_is_said(command: ProcessSpec, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_process_spec(command)


def test_what_cannot_be_started_is_never_written() -> None:
    with pytest.raises(Invalid, match="no command"):
        encode_process_spec(ProcessSpec(argv=()))


def test_what_cannot_be_started_is_never_read() -> None:
    with pytest.raises(Invalid, match="no command"):
        decode_process_spec(Raw(b'{"argv":[]}'))


@pytest.mark.parametrize(
    "payload",
    [b"null", b"{}", b'{"argv":"echo"}', b'{"argv":["a"],"x":1}', b"{", b'{"argv":["\xff"]}'],
)
def test_a_payload_that_is_no_command_is_invalid(payload: bytes) -> None:
    with pytest.raises(Invalid, match="not a command"):
        decode_process_spec(Raw(payload))


@pytest.mark.parametrize(
    ("code", "crash"),
    [(1, False), (3, False), (136, False), (137, True), (138, False), (139, True)],
)
def test_an_exit_that_is_no_success_says_its_code_and_whether_it_was_a_crash(code: int, crash: bool) -> None:
    failure = exit_failure(code, "It ended badly.")

    assert failure == Failure(message="It ended badly.", code=f"Exit{code}", exit_code=code, crash=crash)


@pytest.mark.parametrize("name", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE", "HOLDFAST_STORE"])
def test_what_is_the_workers_own_is_no_secret_for_a_job(name: str) -> None:
    with pytest.raises(Invalid, match=f"^{name} is the worker's own"):
        check_process_spec(ProcessSpec(argv=("env",), secrets=("TOKEN", name)))


def asking(**more: object) -> Spec:
    return Spec(payload=encode_process_spec(ProcessSpec(argv=("make",), **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "lacking"),
    [
        (asking(memory_bytes=20_000_000), "it has a memory limit"),
        (asking(secrets=("TOKEN",)), "it takes secrets from the worker's environment"),
        (asking(pty=True, rows=50), "its terminal has a size of its own"),
        (asking(pty=True, columns=132), "its terminal has a size of its own"),
        (Spec(outputs=OutputPromise(files=(File("model.pt"),))), "it promises outputs"),
        (
            Spec(payload=Raw(rb'{"argv":["make"],"memory_byt\u0065s":20000000}')),
            "it has a memory limit",
        ),
        (
            Spec(payload=Raw(b'{"argv":["make"],"secrets":"all"}')),
            "other workers do not understand its payload",
        ),
    ],
)
def test_what_only_a_holdfast_worker_keeps_needs_one(spec: Spec, lacking: str) -> None:
    assert holdfast_worker_reason(spec) == lacking
    assert claim_kind(spec) == HOLDFAST_COMMAND_KIND


@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        asking(env={"secrets": "memory_bytes"}, cwd="/tmp", pty=True),
        asking(rows=50),
        asking(env={"A": "\u0001"}),
        Spec(kind="resize", payload=Raw(b'{"memory_bytes":1}')),
        Spec(kind="resize", outputs=OutputPromise(manifest="m")),
        Spec(promised_outputs=3),
    ],
)
def test_a_plain_command_and_a_function_are_found_under_their_kind(spec: Spec) -> None:
    assert holdfast_worker_reason(spec) is None
    assert claim_kind(spec) == spec.kind


def test_a_claim_for_commands_finds_all_of_them_and_a_plain_one_those_that_anybody_runs() -> None:
    assert claim_kinds(["command", "resize"]) == ("command", "resize", HOLDFAST_COMMAND_KIND)
    assert claim_kinds(["command", "job.v1"], plain=True) == ("command", "job.v1")
    assert claim_kinds(["resize"]) == ("resize",)
    assert claim_kinds([]) == ()
    assert claim_kinds([HOLDFAST_COMMAND_KIND]) == ()
    with pytest.raises(Invalid):
        check_id(HOLDFAST_COMMAND_KIND, "kind")


def test_what_a_job_runs_is_known_whoever_can_run_it() -> None:
    theirs = b'{"command":"make","args":["all"],"environment":{"A":"b"},"workingDirectory":"/src"}'

    assert process_spec_of(Spec(payload=encode_process_spec(FULL))) == FULL
    assert process_spec_of(Spec(kind=JOB_V1_KIND, payload=Raw(theirs))) == ProcessSpec(
        argv=("make", "all"), env={"A": "b"}, cwd="/src"
    )


@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        Spec(kind="resize", payload=encode_process_spec(FULL)),
        Spec(kind=JOB_V1_KIND),
        Spec(kind=JOB_V1_KIND, payload=Raw(b'{"repository":"r"}')),
        Spec(kind=JOB_V1_KIND, payload=Raw(b'{"command":7}')),
    ],
)
def test_what_is_no_command_or_cannot_be_read_runs_nothing_known(spec: Spec) -> None:
    assert process_spec_of(spec) is None


def test_the_command_of_a_job_for_other_workers_is_read_from_its_words() -> None:
    def read(payload: bytes, kind: str = "job.v1") -> ProcessSpec | None:
        return process_spec_of(Spec(kind=kind, payload=Raw(payload)))

    said = b'{"command": "make", "args": ["test"], "environment": {"A": "b"}}'

    assert JOB_V1_KIND == "job.v1"
    assert read(said) == ProcessSpec(argv=("make", "test"), env={"A": "b"})
    assert read(said.replace(b'"args"', b'"workingDirectory": "/src", "args"')) == ProcessSpec(
        argv=("make", "test"), env={"A": "b"}, cwd="/src"
    )
    assert read(said, kind="payments.charge") is None
    assert read(b'{"command": "\xff"}') is None


def test_the_kind_of_commands_for_our_workers_alone_is_stored_and_stays_what_it_is() -> None:
    assert f"{COMMAND_KIND}/own" == HOLDFAST_COMMAND_KIND
