"""Jobs in the words of job.v1: a client reads what it wrote, whichever worker can run the job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.process_spec import (
    ProcessSpec,
    decode_process_spec,
    encode_process_spec,
    holdfast_worker_reason,
    process_spec_of,
)
from holdfast.core.spec import COMMAND_KIND, JOB_V1_KIND, Spec, check_spec
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.job_params import params_of, spec_of

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
MOUNTS = st.builds(pb.ContainerMount, source=TEXT, target=TEXT, read_only=st.booleans())
CONTAINERS = st.builds(
    pb.ContainerConfig,
    enabled=st.booleans(),
    image=TEXT,
    runtime=TEXT,
    mounts=st.lists(MOUNTS, max_size=2),
)
CLONES = st.builds(
    pb.GitCloneConfig, enabled=st.booleans(), depth=st.integers(0, 9), single_branch=st.booleans()
)
PARAMS = st.builds(
    pb.JobParams,
    repository=TEXT,
    commit=TEXT,
    branch=TEXT,
    environment=st.dictionaries(NAMES, TEXT, max_size=3),
    metadata=st.dictionaries(TEXT | st.just("job.v1.owner"), TEXT, max_size=3),
    owner=TEXT,
    command=TEXT,
    args=st.lists(TEXT, max_size=3),
    process_type=st.sampled_from([pb.ProcessType.PIPE, pb.ProcessType.PTY]),
    timeout_seconds=st.integers(-5, 100_000),
    working_directory=TEXT,
    container=st.none() | CONTAINERS,
    git_clone=st.none() | CLONES,
)
GO_CLI = pb.JobParams(
    repository="https://token@example.org/ana/model.git",
    branch="main",
    owner="ana",
    command="make",
    args=["test"],
    process_type=pb.ProcessType.PTY,
    timeout_seconds=300,
    git_clone=pb.GitCloneConfig(depth=1),
)


@given(PARAMS)
def test_what_a_client_says_of_a_job_comes_back_unchanged(params: pb.JobParams) -> None:
    assert params_of(check_spec(spec_of(params, ""))) == params


def test_a_job_of_the_go_cli_can_be_run_by_a_holdfast_worker() -> None:
    spec = check_spec(spec_of(GO_CLI, ""))

    assert spec.kind == COMMAND_KIND
    command = decode_process_spec(spec.payload)
    assert (command.argv, command.pty) == (("make", "test"), True)
    assert holdfast_worker_reason(spec) is None
    assert "token" not in str(spec.labels)  # which are shown to those who may not read the job


@pytest.mark.parametrize(
    "special",
    [
        pb.JobParams(command="make", git_clone=pb.GitCloneConfig(enabled=True)),
        pb.JobParams(command="make", container=pb.ContainerConfig(enabled=True, image="debian")),
        pb.JobParams(repository="https://example.org/ana/model.git"),
    ],
)
def test_what_only_workers_of_job_v1_can_do_is_for_them(special: pb.JobParams) -> None:
    assert spec_of(special, "").kind == JOB_V1_KIND


def test_without_a_word_on_its_terminal_a_command_has_none() -> None:
    back = params_of(spec_of(pb.JobParams(command="make"), ""))

    assert back == pb.JobParams(command="make", process_type=pb.ProcessType.PIPE)


def test_people_see_the_command_of_a_job_that_only_workers_of_job_v1_can_run() -> None:
    asked = pb.JobParams(
        command="make",
        args=["test"],
        environment={"A": "b"},
        working_directory="/src",
        git_clone=pb.GitCloneConfig(enabled=True),
    )

    spec = spec_of(asked, "")

    assert process_spec_of(spec) == ProcessSpec(argv=("make", "test"), env={"A": "b"}, cwd="/src")
    assert process_spec_of(spec_of(pb.JobParams(owner="ana"), "")) is None


@pytest.mark.parametrize("said", [{"repository": 7}, {"container": "x"}, {"unknown": "x"}])
def test_what_was_made_by_hand_harms_no_listing(said: dict[str, object]) -> None:
    made = Spec(payload=encode_process_spec(ProcessSpec(argv=("make",), job_v1=said)))

    assert params_of(made).command == "make"
