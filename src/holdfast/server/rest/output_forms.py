"""Forms of what concerns outputs: what a job promises, what was found of it, what is to be made again."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, structs

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ENTRIES_MAX,
    ID_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    OUTPUT_NAME_CHARACTERS_MAX,
    OUTPUTS_NAMED_MAX,
)
from holdfast.core.manifest import Task, encode_task
from holdfast.core.outputs import File, Found, Output, Promise
from holdfast.core.state import State
from holdfast.wire import asks
from holdfast.wire.asks import Actor, Checker, Id, OpId, Reason, Whole

Path: TypeAlias = Annotated[
    str, Meta(pattern=r"^[^\x00]*$", min_length=1, max_length=OUTPUT_NAME_CHARACTERS_MAX)
]
OutputName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        max_length=ID_CHARACTERS_MAX,
        examples=["curve.parquet"],
    ),
]
Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Place: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=MESSAGE_CHARACTERS_MAX)]


class FileForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plain path that a command writes, or a pattern and how many files have to match."""

    path: Path
    count: Annotated[int, Meta(ge=1, le=ENTRIES_MAX)] | None = None
    size: Whole | None = None
    sha256: Sha256 | None = None


class PromiseForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job has to leave behind before it counts as succeeded."""

    files: Annotated[tuple[FileForm, ...], Meta(max_length=OUTPUTS_NAMED_MAX)] = ()
    names: Annotated[
        tuple[OutputName, ...],
        Meta(max_length=OUTPUTS_NAMED_MAX, description="Written through the handler's context."),
    ] = ()
    manifest: Annotated[
        Sha256 | None, Meta(description="The sha256 of a manifest that is kept.")
    ] = None
    entries: Annotated[int, Meta(ge=0, le=ENTRIES_MAX)] = 0
    store: Annotated[Id | None, Meta(description="The id of the output store.")] = None
    place: Annotated[Place | None, Meta(description="Where that is, for people.")] = None
    resume_attempt: Whole = 0
    original_total: Whole = 0

    def promise(self) -> Promise:
        files = tuple(File(**structs.asdict(one)) for one in self.files)
        return Promise(**{**structs.asdict(self), "files": files})


class FoundForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a validation found."""

    verified: Whole = 0
    missing: Whole = 0
    reused: Whole = 0
    names: Annotated[
        tuple[Path, ...],
        Meta(max_length=OUTPUTS_NAMED_MAX, description="The first few of the missing ones."),
    ] = ()
    report: Path | None = None


class OutputForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One promised output, as somebody saw it."""

    name: Path
    path: Path | None = None
    size: Whole | None = None
    sha256: Sha256 | None = None
    missing: Annotated[Reason | None, Meta(description="Why it does not count.")] = None
    reused: bool = False


class JudgeForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict on the outputs of a job, or (`override`, with its reason) an operator's word."""

    job_id: Id
    actor: Checker = ""
    op_id: OpId = None
    found: FoundForm = FoundForm()
    evidence: Annotated[tuple[OutputForm, ...], Meta(max_length=OUTPUTS_NAMED_MAX)] = ()
    version: Whole | None = None
    override: State | None = None
    reason: Reason | None = None

    def ask(self) -> asks.Judge:
        found = Found(**structs.asdict(self.found))
        evidence = tuple(Output(**structs.asdict(one)) for one in self.evidence)
        return asks.Judge(**{**structs.asdict(self), "found": found, "evidence": evidence})


class ResumeForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a job of what an ended job lacks; without `promise`, as the server sees it."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None
    promise: PromiseForm | None = None
    dry_run: Annotated[bool, Meta(description="Only say what it would be.")] = False
    again: Annotated[bool, Meta(description="Also when it is being resumed already.")] = False

    def ask(self) -> asks.Resume:
        promise = None if self.promise is None else self.promise.promise()
        return asks.Resume(**{**structs.asdict(self), "promise": promise})


class ManifestForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks of a study, each of which leaves one output under a path that follows from it."""

    tasks: Annotated[tuple[Task, ...], Meta(min_length=1)]

    def ask(self) -> asks.KeepManifest:
        lines = tuple(_line(task, place) for place, task in enumerate(self.tasks, 1))
        return asks.KeepManifest(lines=lines)


def _line(task: Task, place: int) -> str:
    try:
        return encode_task(task).decode()
    except Invalid as error:
        raise Invalid(f"Task {place}: {error.message}") from error
