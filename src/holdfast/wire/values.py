"""Which message says which value of ours, in `holdfast.v1`."""

from typing import Literal

from protobuf import Oneof

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import (
    CancelRequest,
    DeadLetter,
    Failure,
    Job,
    Lease,
    Progress,
    Resource,
)
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Filter, Finding, Grant, Mismatch, Request, Verification
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping

SPEC = Mapping(Spec, pb.Spec, Mapping(Retry, pb.Retry))
REQUEST = Mapping(Request, pb.Request, SPEC)
FAILURE = Mapping(Failure, pb.Failure)
PROGRESS = Mapping(Progress, pb.Progress)
JOB = Mapping(
    Job,
    pb.Job,
    SPEC,
    FAILURE,
    PROGRESS,
    Mapping(Lease, pb.Lease),
    Mapping(CancelRequest, pb.CancelNote),
    Mapping(DeadLetter, pb.DeadLetter),
)
EVENT = Mapping(Event, pb.Event)
GRANT = Mapping(Grant, pb.Grant, JOB)
RESOURCE = Mapping(Resource, pb.Resource)
FILTER = Mapping(Filter, pb.Filter)
FINDING = Mapping(Finding, pb.Finding)
VERIFICATION = Mapping(Verification, pb.VerifyResponse, Mapping(Mismatch, pb.Mismatch))
AJob = Oneof[Literal["job"], pb.Job]
AnError = Oneof[Literal["error"], pb.ErrorDetail]
KEY = Mapping(Key, pb.Key, kept={"digest": ""})
