"""The spec of a job: its command, how many GPUs it can use, its deadline, and how it resumes after a stop."""

import re
import shlex
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gpuyard.specs.base import Count, Duration, Spec, WorkloadReference
from gpuyard.specs.engines.kubernetes import KubernetesOptions
from gpuyard.specs.engines.slurm import SlurmOptions

_MAX_BYTES = 100_000  # Linux passes at most 131,072 bytes in one argument or variable
_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:\.\.|-|–)\s*(\d{1,6})\s*")
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})
MAX_GPUS = 100_000

CheckpointSignal = Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"]


def _check_argument(text: str) -> str:
    """Accept text that Linux can pass to a process as an argument or environment variable."""
    if "\0" in text:
        raise ValueError("cannot contain a null character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("this is not UTF-8 text") from None
    if size > _MAX_BYTES:
        raise ValueError(f"must have at most {_MAX_BYTES:,} bytes, got {size:,}")
    return text


def _check_not_empty(text: str) -> str:
    if not text:
        raise ValueError("cannot be empty")
    return text


def _check_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    if not argv[0]:
        raise ValueError("the program name cannot be empty")
    return argv


def _check_variable_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError("the name of a variable cannot be empty or contain '='")
    return name


def _split_command(value: Any) -> Any:
    """Split a line into words like a shell would; no shell ever runs it."""
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot split this line into words: {str(error).lower()}") from None
    operator = next((word for word in words if word in _OPERATORS), None)
    if operator is not None:
        raise ValueError(
            f"no shell runs the command, so {operator!r} would be an argument; "
            "write it as a list, like [bash, -c, 'cd data && python train.py']"
        )
    return words


Text = Annotated[str, AfterValidator(_check_argument)]
"""Any text, passed on unchanged: quotes, newlines, and `$(…)` have no special meaning."""
Argv = Annotated[
    tuple[Text, ...],
    BeforeValidator(_split_command),
    Field(min_length=1, max_length=10_000),
    AfterValidator(_check_program),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10_000},
            ]
        }
    ),
]


class _VerbatimSpec(Spec):
    """A spec whose text is passed on unchanged, including its white space."""

    model_config = ConfigDict(str_strip_whitespace=False)


class _ShorthandSpec(_VerbatimSpec):
    """A spec that a single value can stand for."""

    types: ClassVar[tuple[str, ...]]
    """The JSON Schema types of that value."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": list(cls.types)}, handler(schema)]}


class GpuRange(_ShorthandSpec):
    """The number of GPUs that a job can use, over all of its nodes."""

    types = ("integer", "string")

    min: Annotated[
        int, Field(ge=1, le=MAX_GPUS, description="smallest number of GPUs that it starts with")
    ] = 1
    max: Annotated[
        int, Field(ge=1, le=MAX_GPUS, description="largest number of GPUs that it gets")
    ] = 1

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": value}
        if isinstance(value, str):
            if value.strip().isdigit():
                return {"min": int(value), "max": int(value)}
            if (match := _RANGE.fullmatch(value)) is None:
                raise ValueError(
                    f"expected a number of GPUs like 4, or a range like 2..8, got {value!r}"
                )
            return {"min": int(match[1]), "max": int(match[2])}
        if isinstance(value, dict) and "max" not in value and "min" in value:
            return {**value, "max": value["min"]}
        return value

    @model_validator(mode="after")
    def _check_order(self) -> "GpuRange":
        if self.max < self.min:
            raise ValueError(f"max must be at least min, got {self}")
        return self

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"


class Checkpoint(_ShorthandSpec):
    """The checkpoint settings of a job, which let it stop and resume with another number of GPUs."""

    types = ("string",)

    directory: Annotated[
        Annotated[Text, AfterValidator(_check_not_empty)] | None,
        Field(description="directory where it writes checkpoints and looks for one at its start"),
    ] = None
    command: Annotated[
        Argv | None,
        Field(description="command that makes the running job write a checkpoint before a stop"),
    ] = None
    signal: Annotated[
        CheckpointSignal, Field(description="signal that makes the job write a checkpoint and exit")
    ] = "SIGTERM"
    time: Annotated[
        Duration,
        Field(gt=0, le=86400, description="longest time to write a checkpoint"),
    ] = 60.0
    restart: Annotated[
        Duration,
        Field(
            ge=0,
            le=86400,
            description="time that a stop and a restart cost the job; it is resized only if that gains more",
        ),
    ] = 30.0

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        return {"directory": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_directory_or_command(self) -> "Checkpoint":
        if self.directory is None and self.command is None:
            raise ValueError("needs a directory or a command")
        return self


class Retries(_ShorthandSpec):
    """The numbers of restarts of a job. A lost node is not the job's fault; an exit status is."""

    types = ("integer",)

    lost: Annotated[
        int,
        Field(
            ge=0, le=1000, description="number of restarts after its machine or processes were lost"
        ),
    ] = 3
    failed: Annotated[
        int,
        Field(ge=0, le=1000, description="number of restarts after an exit status other than 0"),
    ] = 0

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"lost": value}
        return value


class JobSpec(_VerbatimSpec):
    """The file that `gpuyard submit` reads, `train.job.yaml`."""

    name: Annotated[
        Text,
        AfterValidator(_check_not_empty),
        Field(description="name of the job; default: its program"),
    ] = ""
    command: Annotated[
        Argv,
        Field(
            description="list of arguments as text (numbers in quotes), or one line that is split into words as"
            " a shell would"
        ),
    ]
    gpus: Annotated[
        GpuRange,
        Field(
            description="number of GPUs that the job can use on all nodes together: `4`, `2..8`, or the next "
            "two keys; default: 1"
        ),
    ] = GpuRange()
    nodes: Annotated[
        Count | None,
        Field(
            description="number of machines; `gpus` must divide evenly among them; default: as few as possible"
        ),
    ] = None
    workload: Annotated[
        WorkloadReference | None,
        Field(
            description="workload file next to the job, or a catalog model, for its scaling curve; default: no "
            "curve, so it gets `gpus.max`"
        ),
    ] = None
    samples: Annotated[
        int | None,
        Field(
            gt=0,
            le=10**18,
            description="number of samples that it trains in total; default: the workload's epochs × samples",
        ),
    ] = None
    deadline: Annotated[
        str | None,
        Field(
            max_length=100,
            description="time by which it should finish: `Fri 18:00`, `tomorrow 8:00`, or `2026-11-20 09:00`",
        ),
    ] = None
    time_limit: Annotated[
        Duration | None,
        Field(gt=0, le=366 * 86400, description="time after which it is stopped, like `12 h`"),
    ] = None
    priority: Annotated[
        int,
        Field(
            ge=-1000, le=1000, description="priority from −1000 to 1000; higher ones start first"
        ),
    ] = 0
    checkpoint: Annotated[
        Checkpoint | None,
        Field(
            description="checkpoint to continue from after a stop: a directory, or the next keys; default: "
            "it starts over"
        ),
    ] = None
    retries: Annotated[
        Retries,
        Field(description="number of restarts after a loss, or the next two keys; default: 3"),
    ] = Retries()
    env: Annotated[
        dict[Annotated[Text, AfterValidator(_check_variable_name)], Text],
        Field(
            max_length=10_000, description="environment variables, added to those of the submitter"
        ),
    ] = Field(default_factory=dict)
    cwd: Annotated[
        Annotated[Text, AfterValidator(_check_not_empty)] | None,
        Field(
            description="working directory, absolute or relative to the file; default: where you submit the job"
        ),
    ] = None
    project: Annotated[
        str, Field(max_length=100, description="project that `gpuyard usage` counts the job under")
    ] = ""
    after: Annotated[
        tuple[str, ...],
        Field(
            max_length=1000, description="handles of jobs that must succeed before this one starts"
        ),
    ] = ()
    engine: Annotated[
        str | None,
        Field(
            max_length=100,
            description="engine: `local`, `slurm`, `kubernetes`, or another installed one; default: gpuyard's "
            "choice",
        ),
    ] = None
    slurm: Annotated[SlurmOptions | None, Field(description="options for Slurm only")] = None
    kubernetes: Annotated[
        KubernetesOptions | None, Field(description="options for Kubernetes only")
    ] = None

    @model_validator(mode="after")
    def _check_even_division(self) -> "JobSpec":
        nodes = self.nodes or 1
        for count in (self.gpus.min, self.gpus.max):
            if count % nodes:
                raise ValueError(f"{count} GPUs cannot be divided evenly among {nodes} nodes")
        return self
