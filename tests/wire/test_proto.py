"""The messages: generated from the .proto files, and job.v1 as existing clients know it."""

import subprocess
import sys
from pathlib import Path

from protobuf import DescFieldValueScalar

from holdfast.wire.generated.holdfast.v1 import registry_pb
from holdfast.wire.generated.job.v1 import job_pb
from holdfast.wire.job_params import params_of, spec_of

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

THEIRS = {
    "EnqueueJobRequest": "request_id queue job_params",
    "EnqueueJobResponse": "job_id created_at state",
    "DequeueJobRequest": "queue max_jobs visibility_timeout_seconds",
    "DequeueJobResponse": "job task_token",
    "UpdateJobRequest": "queue task_token visibility_timeout_seconds",
    "UpdateJobResponse": "",
    "CompleteJobRequest": "task_token job_result",
    "CompleteJobResponse": "",
    "JobResult": "job_id success exit_code error_message started_at completed_at",
    "ListJobsRequest": "queue state page page_size",
    "ListJobsResponse": "jobs last_page",
    "StreamJobEventsRequest": "job_id from_sequence from_timestamp event_filter",
    "StreamJobEventsResponse": "event",
    "PublishJobEventsRequest": "task_token events",
    "PublishJobEventsResponse": "",
    "Job": "job_id job_params state created_at updated_at execution_config",
    "JobParams": "repository commit branch environment metadata owner command args process_type"
    " timeout_seconds working_directory container git_clone",
    "ExecutionConfig": "batching heartbeat_interval_seconds output_flush_interval_millis",
    "BatchingConfig": "flush_interval_seconds max_batch_size max_batch_bytes playback_interval_millis",
    "ContainerConfig": "enabled image runtime mounts",
    "ContainerMount": "source target read_only",
    "GitCloneConfig": "enabled depth single_branch submodules",
    "JobEvent": "sequence timestamp event_type process_start process_end process_error heartbeat output"
    " terminal_resize output_batch container_create container_remove image_pull_start"
    " image_pull_progress image_pull_complete git_clone_start git_clone_end git_clone_error",
    "ProcessStart": "pid started_at",
    "ProcessEnd": "pid exit_code run_duration",
    "ProcessError": "error_message",
    "Heartbeat": "elapsed_time process_alive",
    "Output": "output",
    "TerminalResize": "cols rows width_pixels height_pixels",
    "OutputBatch": "outputs start_sequence end_sequence first_timestamp_ms playback_interval_millis",
    "OutputItem": "output stream_type timestamp_delta_ms",
    "ContainerCreate": "container_id image created_at",
    "ImagePullProgress": "image status current_bytes total_bytes",
    "GitCloneStart": "repository commit branch started_at",
    "GitCloneEnd": "commit_sha clone_duration working_directory",
    "GitCloneError": "error_message stderr_output",
}
TYPES = {
    "DequeueJobRequest": "queue=string max_jobs=int32 visibility_timeout_seconds=int32",
    "UpdateJobRequest": "queue=string task_token=string visibility_timeout_seconds=int32",
    "JobResult": "job_id=string success=bool exit_code=int32 error_message=string",
    "ListJobsRequest": "queue=string page=int32 page_size=int32",
    "StreamJobEventsRequest": "job_id=string from_sequence=int64 from_timestamp=int64",
    "ExecutionConfig": "heartbeat_interval_seconds=int32 output_flush_interval_millis=int32",
    "BatchingConfig": "flush_interval_seconds=int32 max_batch_size=int32 max_batch_bytes=int64"
    " playback_interval_millis=int32",
    "ContainerConfig": "enabled=bool image=string runtime=string",
    "ContainerMount": "source=string target=string read_only=bool",
    "GitCloneConfig": "enabled=bool depth=int32 single_branch=bool submodules=string",
    "JobEvent": "sequence=int64",
    "ProcessStart": "pid=int32",
    "ProcessEnd": "pid=int32 exit_code=int32",
    "Heartbeat": "process_alive=bool",
    "Output": "output=bytes",
    "TerminalResize": "cols=int32 rows=int32 width_pixels=int32 height_pixels=int32",
    "OutputBatch": "start_sequence=int64 end_sequence=int64 first_timestamp_ms=int64"
    " playback_interval_millis=int32",
    "OutputItem": "output=bytes timestamp_delta_ms=int32",
    "ImagePullProgress": "image=string status=string current_bytes=int64 total_bytes=int64",
}
ENUMS = {
    "JobState": "UNSPECIFIED SCHEDULED RUNNING COMPLETED FAILED CANCELLED",
    "ProcessType": "UNSPECIFIED PIPE PTY",
    "StreamType": "UNSPECIFIED STDOUT STDERR",
    "EventType": "UNSPECIFIED PROCESS_START PROCESS_END PROCESS_ERROR HEARTBEAT OUTPUT TERMINAL_RESIZE"
    " OUTPUT_BATCH CONTAINER_CREATE CONTAINER_REMOVE IMAGE_PULL_START IMAGE_PULL_PROGRESS"
    " IMAGE_PULL_COMPLETE GIT_CLONE_START GIT_CLONE_END GIT_CLONE_ERROR",
}


def test_the_names_and_numbers_of_existing_clients_are_kept() -> None:
    for name, theirs in THEIRS.items():
        fields = {field.number: field.name for field in getattr(job_pb, name).desc().fields}
        known = {number: word for number, word in fields.items() if number < 100}
        assert known == dict(enumerate(theirs.split(), 1)), name


def test_the_types_of_existing_clients_are_kept() -> None:
    for name, theirs in TYPES.items():
        scalars = [
            f"{field.name}={field.value.scalar.name.lower()}"
            for field in getattr(job_pb, name).desc().fields
            if field.number < 100 and isinstance(field.value, DescFieldValueScalar)
        ]
        assert scalars == theirs.split(), name


def test_submodules_of_existing_clients_are_kept_as_they_say_them() -> None:
    params = job_pb.JobParams(git_clone=job_pb.GitCloneConfig(enabled=True, submodules="recursive"))

    kept = params_of(spec_of(params, "default"))

    assert kept.git_clone is not None
    assert kept.git_clone.submodules == "recursive"


def test_what_we_added_to_their_messages_has_numbers_from_100_up() -> None:
    added = {
        f"{name}.{field.name}"
        for name in THEIRS
        for field in getattr(job_pb, name).desc().fields
        if field.number >= 100
    }

    assert {"Job.queue", "Job.attempt", "Job.owner", "Job.result", "Job.reason"} <= added


def test_the_words_of_their_enums_are_kept() -> None:
    for name, words in ENUMS.items():
        assert [one.name for one in getattr(job_pb, name)] == words.split(), name
        assert [int(one) for one in getattr(job_pb, name)] == list(range(len(words.split())))


def test_the_generated_code_is_what_the_messages_say(tmp_path: Path) -> None:
    template = (ROOT / "proto" / "buf.gen.yaml").read_text(encoding="utf-8")
    made = tmp_path / "buf.gen.yaml"
    made.write_text(template.replace("../src/holdfast/wire/generated", str(tmp_path / "made")))

    done = subprocess.run(
        [BIN / "buf", "generate", "--template", made],
        cwd=ROOT / "proto",
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    for module in (job_pb, registry_pb):
        kept = Path(str(module.__file__))
        for name in (kept.name, kept.name.replace("_pb", "_connect")):
            here = kept.with_name(name)
            package = here.relative_to(ROOT / "src/holdfast/wire/generated")
            assert here.read_text() == (tmp_path / "made" / package).read_text(), "run: make proto"


def test_the_messages_pass_their_own_linter(tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / "buf", "lint"],
        cwd=ROOT / "proto",
        env={"PATH": str(BIN), "HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
