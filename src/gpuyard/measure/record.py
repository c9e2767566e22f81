"""What the records of all benches have in common: when, on what testbed, how to find it, whether to believe it."""

import hashlib
import importlib.metadata
import json
import platform
import socket
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import psutil
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
)

from gpuyard import __version__
from gpuyard.catalog.models import ModelProfile
from gpuyard.cpu import cpu_model, os_name, usable_cores
from gpuyard.run.probe import cuda_gpus
from gpuyard.specs import Precision

_HARDWARE = {"host", "cpu_model", "cores", "memory_bytes", "gpus"}


class RecordPart(BaseModel):
    """A piece of a record."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer gpuyard may add keys


class Testbed(RecordPart):
    """What has to be the same for two measurements to be comparable, and what may explain a difference."""

    __test__ = False  # pytest takes classes of such a name for tests

    gpuyard: str
    torch: str
    python: str
    os: str
    kernel: str
    host: str
    cpu_model: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...]

    def fingerprint(self) -> str:
        """Changes with the hardware, not with a kernel update."""
        hardware = self.model_dump(include=_HARDWARE)
        return hashlib.sha256(json.dumps(hardware, sort_keys=True).encode()).hexdigest()[:16]


class Record(RecordPart):
    """One thing that was measured: when, how to find it again, and whether to believe it."""

    id: str
    key: str = Field(description="the same for the same measurement on the same machine")
    created_at: str = Field(description="UTC, ISO 8601")
    kind: str
    doubt: str | None = Field(
        default=None, description="why it is not credible; None: nothing speaks against it"
    )

    @property
    def workload_name(self) -> str:
        """Of what was trained; empty where nothing was."""
        return str(getattr(self, "workload", ""))

    @property
    def is_new(self) -> bool:
        """Worth keeping: something was measured for it."""
        return True

    @property
    def made(self) -> str:
        """To the minute, for lists."""
        return self.created_at[:16].replace("T", " ")

    def as_json(self) -> dict[str, Any]:
        """For programs; an export holds no more than the record itself."""
        return self.model_dump(mode="json")


def _profile_or_none(value: Any, handler: ValidatorFunctionWrapHandler) -> ModelProfile | None:
    try:
        return cast("ModelProfile | None", handler(value))
    except ValidationError:  # of another version of gpuyard: the run itself can still be read
        return None


def _without_computed(
    profile: ModelProfile | None, _handler: SerializerFunctionWrapHandler
) -> dict[str, Any] | None:
    return None if profile is None else profile.model_dump(mode="json", round_trip=True)


OwnProfile = Annotated[
    ModelProfile | None,
    WrapValidator(_profile_or_none),
    WrapSerializer(_without_computed),
    Field(description="of a user's own model; the catalog has those of others"),
]
"""Kept with a run, so that nobody has to run the model's code to make use of it."""


class Cause(RecordPart):
    """Why something may be slower than it should be, and what to do about it."""

    name: str
    why: str
    next_step: str


class BenchRecord(Record):
    """One that was made on one testbed."""

    host: Testbed


def made_now(key: str) -> dict[str, str]:
    """What a record of something that was just measured begins with."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"id": uuid.uuid4().hex[:12], "key": key, "created_at": now}


def key_of(asked: Mapping[str, Any]) -> str:
    """The same for the same question."""
    document = json.dumps(asked, sort_keys=True, default=str)
    return hashlib.sha256(document.encode()).hexdigest()


def this_testbed() -> Testbed:
    """Look at this machine."""
    return Testbed(
        gpuyard=__version__,
        torch=torch_version(),
        python=platform.python_version(),
        os=os_name(),
        kernel=platform.release(),
        host=socket.gethostname(),
        cpu_model=cpu_model(),
        cores=len(usable_cores()),
        memory_bytes=psutil.virtual_memory().total,
        gpus=cuda_gpus(),
    )


def torch_version() -> str:
    """Without importing it, which takes seconds."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def in_precision(precision: Precision | None) -> str:
    """What a title says after the workload's name."""
    return f" in {precision}" if precision else ""
