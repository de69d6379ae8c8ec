"""Which message says which value of ours, in `holdfast.v1`."""

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
    Resource,
)
from holdfast.core.outputs import Check, File, Found, Output, Promise
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Filter, Finding, Grant, Mismatch, Request, Verification
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping

PROMISE = Mapping(Promise, pb.Promise, Mapping(File, pb.OutputFile))
OUTPUT = Mapping(Output, pb.Output)
FOUND = Mapping(Found, pb.Found)
SPEC = Mapping(Spec, pb.Spec, Mapping(Retry, pb.Retry), PROMISE)
REQUEST = Mapping(Request, pb.Request, SPEC, kept={"found": None})
FAILURE = Mapping(Failure, pb.Failure)
PROGRESS = Mapping(Progress, pb.Progress)
JOB = Mapping(
    Job,
    pb.Job,
    SPEC,
    FAILURE,
    PROGRESS,
    FOUND,
    Mapping(Check, pb.Check),
    Mapping(Lease, pb.Lease),
    Mapping(CancelRequest, pb.CancelNote),
    Mapping(DeadLetter, pb.DeadLetter),
    Mapping(Flaws, pb.Flaws),
)
EVENT = Mapping(Event, pb.Event)
GRANT = Mapping(Grant, pb.Grant, JOB)
RESOURCE = Mapping(Resource, pb.Resource)
FILTER = Mapping(Filter, pb.Filter, kept={"viewer": None})
FINDING = Mapping(Finding, pb.Finding)
VERIFICATION = Mapping(Verification, pb.VerifyResponse, Mapping(Mismatch, pb.Mismatch))
AJob = Oneof[Literal["job"], pb.Job]
AnError = Oneof[Literal["error"], pb.ErrorDetail]
KEY = Mapping(Key, pb.Key, kept={"digest": ""})
