"""The messages of `holdfast.v1` for the values of the core and the ports."""

from typing import Literal

from protobuf import Oneof

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import (
    CancelRequest,
    DeadLetter,
    Failure,
    Flaws,
    Job,
    Lease,
    Progress,
    ResourceLock,
)
from holdfast.core.outputs import File, Output, OutputPromise, ValidationProgress, ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.workers import QueueInfo, WorkerInfo
from holdfast.ports import Finding, Grant, JobRequest, Mismatch, Verification
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping

OUTPUT_PROMISE = Mapping(OutputPromise, pb.OutputPromise, Mapping(File, pb.OutputFile))
OUTPUT = Mapping(Output, pb.Output)
VALIDATION_RESULT = Mapping(ValidationResult, pb.ValidationResult)
SPEC = Mapping(Spec, pb.Spec, Mapping(Retry, pb.Retry), OUTPUT_PROMISE)
JOB_REQUEST = Mapping(JobRequest, pb.JobRequest, SPEC, local={"found": None})
FAILURE = Mapping(Failure, pb.Failure)
PROGRESS = Mapping(Progress, pb.Progress)
JOB = Mapping(
    Job,
    pb.Job,
    SPEC,
    FAILURE,
    PROGRESS,
    VALIDATION_RESULT,
    Mapping(ValidationProgress, pb.ValidationProgress),
    Mapping(Lease, pb.Lease),
    Mapping(CancelRequest, pb.Cancellation),
    Mapping(DeadLetter, pb.DeadLetter),
    Mapping(Flaws, pb.Flaws),
)
EVENT = Mapping(Event, pb.Event)
GRANT = Mapping(Grant, pb.Grant, JOB)
RESOURCE_LOCK = Mapping(ResourceLock, pb.ResourceLock)
FINDING = Mapping(Finding, pb.Finding)
VERIFICATION = Mapping(Verification, pb.VerifyResponse, Mapping(Mismatch, pb.Mismatch))
JobOneof = Oneof[Literal["job"], pb.Job]
ErrorOneof = Oneof[Literal["error"], pb.ErrorDetail]
KEY = Mapping(Key, pb.Key, local={"digest": ""})
WORKER = Mapping(WorkerInfo, pb.Worker)
QUEUE = Mapping(QueueInfo, pb.Queue)
