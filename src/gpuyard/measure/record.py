"""The common part of all records: id, key, date, testbed, and whether the result is doubtful."""

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

from gpuyard.catalog.models import ModelProfile
from gpuyard.cpu import cpu_model, os_name, usable_cores
from gpuyard.run.probe import cuda_gpus
from gpuyard.specs import Precision
from gpuyard.version import __version__

_HARDWARE = {"host", "cpu_model", "cores", "memory_bytes", "gpus"}


class RecordPart(BaseModel):
    """A part of a record."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer gpuyard may add keys


class Testbed(RecordPart):
    """The hardware and software of a measurement: two are comparable if these are equal."""

    __test__ = False  # pytest collects classes named Test…

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
        """Hash the hardware; a kernel update does not change it."""
        hardware = self.model_dump(include=_HARDWARE)
        return hashlib.sha256(json.dumps(hardware, sort_keys=True).encode()).hexdigest()[:16]


class Record(RecordPart):
    """One stored result."""

    id: str
    key: str = Field(description="the same for the same measurement on the same machine")
    created_at: str = Field(description="UTC, ISO 8601")
    kind: str
    doubt: str | None = Field(
        default=None, description="why the result is doubtful; None: it is valid"
    )

    @property
    def workload_name(self) -> str:
        """The name of the trained workload; empty if nothing was trained."""
        return str(getattr(self, "workload", ""))

    @property
    def is_new(self) -> bool:
        """True if anything was measured for it, so that it should be stored."""
        return True

    @property
    def created_minute(self) -> str:
        """The date and time to the minute, for tables."""
        return self.created_at[:16].replace("T", " ")

    def as_json(self) -> dict[str, Any]:
        """Return the document that `--json` prints; an export contains only the record's own fields."""
        return self.model_dump(mode="json")


def _profile_or_none(value: Any, handler: ValidatorFunctionWrapHandler) -> ModelProfile | None:
    try:
        return cast("ModelProfile | None", handler(value))
    except ValidationError:  # another gpuyard version wrote it; the run itself can still be read
        return None


def _without_computed(
    profile: ModelProfile | None, _handler: SerializerFunctionWrapHandler
) -> dict[str, Any] | None:
    return None if profile is None else profile.model_dump(mode="json", round_trip=True)


StoredProfile = Annotated[
    ModelProfile | None,
    WrapValidator(_profile_or_none),
    WrapSerializer(_without_computed),
    Field(description="profile of a model that is not in the catalog"),
]
"""The profile stored with a run, so that using the run never executes the model's code."""


class Cause(RecordPart):
    """A possible reason why a result is slow, and what to do about it."""

    name: str
    why: str
    next_step: str


class BenchRecord(Record):
    """A record measured on one testbed."""

    host: Testbed


def create_identity(key: str) -> dict[str, str]:
    """Return the id, key, and date of a new record."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"id": uuid.uuid4().hex[:12], "key": key, "created_at": now}


def hash_key(parameters: Mapping[str, Any]) -> str:
    """Hash the parameters of a measurement; equal parameters have equal keys."""
    document = json.dumps(parameters, sort_keys=True, default=str)
    return hashlib.sha256(document.encode()).hexdigest()


def discover_testbed() -> Testbed:
    """Read this machine's hardware and software versions."""
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
    """Return PyTorch's version without importing it, which takes seconds."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def format_precision_suffix(precision: Precision | None) -> str:
    """Format the precision for a title, after the workload's name."""
    return f" in {precision}" if precision else ""
