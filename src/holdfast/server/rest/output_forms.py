"""Forms about outputs: what a job promises, what a validation found, what a resumed job has to make."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

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
from holdfast.core.outputs import File, Output, OutputPromise, ValidationResult
from holdfast.core.state import State
from holdfast.server.rest.form_types import derive_form, value_of
from holdfast.wire.fields import Actor, Id, OpId, Reason, ValidatorName, WholeNumber
from holdfast.wire.requests import CompleteValidation, Resume, StoreManifest

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
Location: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=MESSAGE_CHARACTERS_MAX)]


if TYPE_CHECKING:  # to the type checker, a derived form is the value that it describes
    OutputPromiseForm = OutputPromise
    ValidationResultForm = ValidationResult
    OutputForm = Output
else:
    OutputPromiseForm = derive_form(
        OutputPromise,
        "OutputPromiseForm",
        "The outputs that a job has to leave behind before it counts as succeeded.",
        files=Annotated[
            tuple[
                derive_form(
                    File,
                    "OutputFileForm",
                    "A path that a command writes, or a pattern and how many files have to match.",
                    path=Path,
                    count=Annotated[int, Meta(ge=1, le=ENTRIES_MAX)] | None,
                    size=WholeNumber | None,
                    sha256=Sha256 | None,
                ),
                ...,
            ],
            Meta(max_length=OUTPUTS_NAMED_MAX),
        ],
        names=Annotated[
            tuple[OutputName, ...],
            Meta(max_length=OUTPUTS_NAMED_MAX, description="Written through the handler's context."),
        ],
        manifest=Annotated[Sha256 | None, Meta(description="The sha256 of a stored manifest.")],
        entries=Annotated[int, Meta(ge=0, le=ENTRIES_MAX)],
        store=Annotated[Id | None, Meta(description="The id of the output store.")],
        place=Annotated[Location | None, Meta(description="Where the output store is, for display.")],
        resume_attempt=WholeNumber,
        original_total=WholeNumber,
    )
    ValidationResultForm = derive_form(
        ValidationResult,
        "ValidationResultForm",
        "The result of a validation.",
        verified=WholeNumber,
        missing=WholeNumber,
        reused=WholeNumber,
        names=Annotated[
            tuple[Path, ...],
            Meta(max_length=OUTPUTS_NAMED_MAX, description="The first few missing outputs."),
        ],
        report=Path | None,
    )
    OutputForm = derive_form(
        Output,
        "OutputForm",
        "One promised output, as the validator saw it.",
        name=Path,
        path=Path | None,
        size=WholeNumber | None,
        sha256=Sha256 | None,
        missing=Annotated[Reason | None, Meta(description="Why it does not count.")],
    )


class CompleteValidationForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict on the outputs of a job, or (`override`, with its reason) an operator's decision."""

    job_id: Id
    actor: ValidatorName = ""
    op_id: OpId = None
    found: ValidationResultForm = ValidationResultForm()
    evidence: Annotated[tuple[OutputForm, ...], Meta(max_length=OUTPUTS_NAMED_MAX)] = ()
    version: WholeNumber | None = None
    override: State | None = None
    reason: Reason | None = None

    def to_request(self) -> CompleteValidation:
        found = value_of(self.found)
        evidence = tuple(map(value_of, self.evidence))
        return CompleteValidation(**{**structs.asdict(self), "found": found, "evidence": evidence})


class ResumeForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create a job for the outputs an ended job lacks; without `promise`, as the server sees them."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None
    promise: OutputPromiseForm | None = None
    dry_run: Annotated[bool, Meta(description="Only show what it would do.")] = False
    again: Annotated[bool, Meta(description="Also if another job resumes it already.")] = False

    def to_request(self) -> Resume:
        promise = None if self.promise is None else value_of(self.promise)
        return Resume(**{**structs.asdict(self), "promise": promise})


class ManifestForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks of a study; each leaves one output, under a path that is derived from the task."""

    tasks: Annotated[tuple[Task, ...], Meta(min_length=1)]

    def to_request(self) -> StoreManifest:
        lines = tuple(_line(task, number) for number, task in enumerate(self.tasks, 1))
        return StoreManifest(lines=lines)


def _line(task: Task, number: int) -> str:
    try:
        return encode_task(task).decode()
    except Invalid as error:
        raise Invalid(f"Task {number}: {error.message}") from error
