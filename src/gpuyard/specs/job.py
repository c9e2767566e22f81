"""A job: a command that wants GPUs, how many it can use, when it has to be done, and how it goes on after a stop."""

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

_LONGEST_BYTES = 100_000  # Linux passes at most 131,072 bytes in one argument or variable
_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:\.\.|-|–)\s*(\d{1,6})\s*")
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})
MOST_GPUS = 100_000

CheckpointSignal = Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"]


def _passable(text: str) -> str:
    """What a process can be given as an argument or in its environment, whatever characters it has."""
    if "\0" in text:
        raise ValueError("can't have a null character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("this is not text in UTF-8") from None
    if size > _LONGEST_BYTES:
        raise ValueError(f"takes at most {_LONGEST_BYTES:,} bytes, got {size:,}")
    return text


def _given(text: str) -> str:
    if not text:
        raise ValueError("can't be empty")
    return text


def _runnable(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words[0]:
        raise ValueError("the name of a program can't be empty")
    return words


def _variable(name: str) -> str:
    if not name or "=" in name:
        raise ValueError("the name of a variable can't be empty or have '='")
    return name


def _words(value: Any) -> Any:
    """One line is split into words as a shell would, and no shell ever runs it."""
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"this line can't be split into words: {str(error).lower()}") from None
    operator = next((word for word in words if word in _OPERATORS), None)
    if operator is not None:
        raise ValueError(
            f"no shell runs the command, so {operator!r} would be one of its arguments; "
            "write it as a list, like [bash, -c, 'cd data && python train.py']"
        )
    return words


Text = Annotated[str, AfterValidator(_passable)]
"""Any text, passed on as it is: quotes, line ends and `$(…)` mean nothing to anybody."""
Argv = Annotated[
    tuple[Text, ...],
    BeforeValidator(_words),
    Field(min_length=1, max_length=10_000),
    AfterValidator(_runnable),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10_000},
            ]
        }
    ),
]


class _Exact(Spec):
    """A job's text is passed on to the letter."""

    model_config = ConfigDict(str_strip_whitespace=False)


class _Short(_Exact):
    """Keys that one plain value can stand for."""

    types: ClassVar[tuple[str, ...]]
    """Of that value, in JSON Schema's words."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": list(cls.types)}, handler(schema)]}


class GpuRange(_Short):
    """How many GPUs a job can use, on all of its nodes together."""

    types = ("integer", "string")

    min: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    max: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
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
    def _in_order(self) -> "GpuRange":
        if self.max < self.min:
            raise ValueError(f"the most GPUs can't be fewer than the least, got {self}")
        return self

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"


class Checkpoint(_Short):
    """How a job keeps what it has done, so that it can be stopped and go on with another number of GPUs."""

    types = ("string",)

    directory: Annotated[
        Annotated[Text, AfterValidator(_given)] | None,
        Field(description="where it writes checkpoints, and looks for one when it starts"),
    ] = None
    command: Annotated[
        Argv | None,
        Field(description="what makes it write one; run beside it before it is stopped"),
    ] = None
    signal: Annotated[CheckpointSignal, Field(description="what tells it to write one and end")] = (
        "SIGTERM"
    )
    time: Annotated[
        Duration, Field(gt=0, le=86400, description="how long writing one may take")
    ] = 60.0
    restart: Annotated[
        Duration, Field(ge=0, le=86400, description="what a stop and a start cost it")
    ] = 30.0

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        return {"directory": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_one(self) -> "Checkpoint":
        if self.directory is None and self.command is None:
            raise ValueError("needs a directory or a command")
        return self


class Retries(_Short):
    """How often it is started again. A node that is lost is not the job's fault; an exit status is."""

    types = ("integer",)

    lost: Annotated[
        int, Field(ge=0, le=1000, description="times, where its machine or its processes were lost")
    ] = 3
    failed: Annotated[
        int,
        Field(ge=0, le=1000, description="times, where it ended with an exit status other than 0"),
    ] = 0

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"lost": value}
        return value


class JobSpec(_Exact):
    """What `gpuyard submit` takes as a file, `train.job.yaml`."""

    name: Annotated[Text, AfterValidator(_given), Field(description="its program if left out")] = ""
    command: Annotated[
        Argv,
        Field(
            description="a list of arguments, or one line that is split at its spaces; no shell runs it"
        ),
    ]
    gpus: Annotated[
        GpuRange, Field(description="like 4 or 2..8: how many the job can use in total")
    ] = GpuRange()
    nodes: Annotated[
        Count | None, Field(description="on how many machines; as few as possible if left out")
    ] = None
    workload: Annotated[
        WorkloadReference | None,
        Field(description="what it trains: its scaling curve is measured or predicted"),
    ] = None
    samples: Annotated[
        int | None,
        Field(
            gt=0, le=10**18, description="it trains in total; else the workload's epochs × samples"
        ),
    ] = None
    deadline: Annotated[
        str | None, Field(max_length=100, description="like 'Fri 18:00' or '2026-11-20 09:00'")
    ] = None
    time_limit: Annotated[
        Duration | None, Field(gt=0, le=366 * 86400, description="it is stopped after so long")
    ] = None
    priority: Annotated[int, Field(ge=-1000, le=1000, description="higher goes first")] = 0
    checkpoint: Checkpoint | None = None
    retries: Annotated[
        Retries, Field(description="a number is how often it is started again where it was lost")
    ] = Retries()
    env: Annotated[
        dict[Annotated[Text, AfterValidator(_variable)], Text],
        Field(
            max_length=10_000, description="variables that it gets beside those of who submits it"
        ),
    ] = Field(default_factory=dict)
    cwd: Annotated[
        Annotated[Text, AfterValidator(_given)] | None,
        Field(
            description="where it runs: beside the file, or an absolute path; else where it is submitted"
        ),
    ] = None
    project: Annotated[str, Field(max_length=100, description="as `gpuyard usage` counts it")] = ""
    after: Annotated[
        tuple[str, ...],
        Field(max_length=1000, description="handles of jobs that have to succeed before it starts"),
    ] = ()
    engine: Annotated[
        str | None, Field(max_length=100, description="local, slurm or kubernetes; else chosen")
    ] = None
    slurm: SlurmOptions | None = None
    kubernetes: KubernetesOptions | None = None

    @model_validator(mode="after")
    def _divides(self) -> "JobSpec":
        nodes = self.nodes or 1
        for count in (self.gpus.min, self.gpus.max):
            if count % nodes:
                raise ValueError(f"{count} GPUs can't be divided evenly among {nodes} nodes")
        return self

    @property
    def title(self) -> str:
        """The name, or the program that it runs."""
        return self.name or self.command[0].rpartition("/")[2] or self.command[0]
