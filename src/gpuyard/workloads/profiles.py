"""Find the profile of a workload's model: in the catalog, or by running the user's own module once.

The user's module runs in another process, `profile_process`. Code that exits, parses arguments, prints, or crashes on
import then disturbs nothing here.
"""

import contextlib
import functools
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gpuyard import errors
from gpuyard.catalog.models import ModelProfile, models
from gpuyard.catalog.transformers import transformers
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.interpreter import import_path, module_argv
from gpuyard.printable import make_printable
from gpuyard.specs import Workload
from gpuyard.specs.transformer import TransformerShape
from gpuyard.specs.workload import PackedWorkload
from gpuyard.workloads.zoo import MODELS

PROFILING_SECONDS = 600.0  # a model that does not work on "meta" runs on the CPU
_MAX_REPLY_BYTES = 64 * 2**20
_LAST_BYTES = 8 * 2**10
_LAST_LINES = 10
_DRAIN_SECONDS = 5.0


def profile_model(workload: Workload) -> ModelProfile:
    """Return the model's demands on hardware; run a model that the catalog lacks in another process.

    Raise CodeNotAllowed if that would run code that is not the user's own.
    """
    profile = catalog_profile(workload)
    if profile is not None:
        return profile
    from gpuyard.workloads.code_trust import check_allowed, code_digest
    from gpuyard.workloads.resolve import require_torch

    require_torch(f"profiling {workload.model_name}")
    check_allowed(workload)
    return _profile_user_model(workload, code_digest(workload.model_name, workload))


@functools.lru_cache(maxsize=64)
def _profile_user_model(workload: Workload, digest: str | None) -> ModelProfile:
    del digest  # part of the cache key: changed code is another model
    return profile_in_subprocess(workload)


def catalog_profile(workload: Workload) -> ModelProfile | None:
    """Return the catalog's profile, or None for the user's own model. Raise UserMistake for a large model."""
    if not has_profile(workload):
        raise UserMistake(
            f"{workload.name} is a large model: gpuyard knows its shape and not its layers, so use gpuyard predict, "
            "plan, or goodput, which divide it among GPUs"
        )
    built_in = {factory: name for name, factory in MODELS.items()}
    name = built_in.get(workload.model_name, workload.model_name)
    return None if ":" in name else models().get(name)


def profile_in_process(workload: Workload) -> ModelProfile:
    """Return the catalog's profile, or run the model in this process, as ranks and the profiling process do."""
    profile = catalog_profile(workload)
    if profile is not None:
        return profile
    from gpuyard.workloads.resolve import build_task, require_torch

    require_torch(f"profiling {workload.model_name}")
    import torch

    from gpuyard.workloads.profiling import profile_task

    try:
        with torch.device("meta"):  # no memory and no arithmetic, so any model size is fast
            task = build_task(workload)
            return profile_task(task, id=workload.name, name=workload.model_name)
    except (Exception, SystemExit):  # noqa: BLE001
        # some models read their values, which "meta" lacks; a real run also reports the user's own faults
        return _profile_on_cpu(workload)


def _profile_on_cpu(workload: Workload) -> ModelProfile:
    from gpuyard.workloads.profiling import profile_task
    from gpuyard.workloads.resolve import build_task, describe_fault

    task = build_task(workload)
    try:
        return profile_task(task, id=workload.name, name=workload.model_name)
    except GpuyardError:
        raise
    except (Exception, SystemExit) as fault:
        raise describe_fault(
            f"cannot train {workload.model_name} on {task.sample}", fault
        ) from fault


class ProfileRequest(BaseModel):
    """The line of JSON that the profiling process gets."""

    model_config = ConfigDict(frozen=True)

    workload: PackedWorkload


class ProfileReply(BaseModel):
    """The line of JSON that the profiling process replies with: a profile, or an error."""

    model_config = ConfigDict(frozen=True)

    profile: ModelProfile | None = None
    kind: Literal["GpuyardError", "MissingRequirement", "UserMistake"] = "GpuyardError"
    message: str = ""


def profile_in_subprocess(
    workload: Workload, timeout_seconds: float = PROFILING_SECONDS
) -> ModelProfile:
    """Return the profile from the other process; raise its error, or UserMistake if it died."""
    request = ProfileRequest(workload=workload)
    with subprocess.Popen(
        module_argv("gpuyard.workloads.profile_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that its children can be killed with it
        # its output arrives however it ends
        env={**os.environ, **import_path(), "PYTHONUNBUFFERED": "1"},
    ) as process:
        stdout = _PipeReader(process.stdout, first=_MAX_REPLY_BYTES)
        stderr = _PipeReader(process.stderr, last=_LAST_BYTES)
        try:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(request.model_dump_json().encode() + b"\n")
                    process.stdin.flush()
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        reply, tail = stdout.finish(), stderr.finish()
    return _parse_reply(workload.model_name, reply, tail, _describe_end(status, timeout_seconds))


class _PipeReader:
    """Reads a pipe in a thread and keeps only its first or last bytes."""

    def __init__(self, pipe: IO[bytes] | None, *, first: int = 0, last: int = 0) -> None:
        self._pipe, self._first, self._last = pipe, first, last
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def finish(self) -> bytes:
        self._thread.join(_DRAIN_SECONDS)
        return self._kept

    def _read(self) -> None:
        while self._pipe is not None and (data := self._pipe.read1(2**16)):  # type: ignore[attr-defined]
            kept = self._kept + data
            self._kept = kept[: self._first] if self._first else kept[-self._last :]


def _describe_end(status: int | None, timeout_seconds: float) -> str:
    if status is None:
        return f"timed out after {timeout_seconds:.0f} s"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _parse_reply(model: str, text: bytes, tail: bytes, end: str) -> ModelProfile:
    try:
        reply = ProfileReply.model_validate_json(text)
    except ValidationError:
        lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
        last_lines = "".join(f"\n  {make_printable(line)}" for line in lines[-_LAST_LINES:])
        raise UserMistake(
            f"cannot profile {model}: the process that ran its code {end}"
            + (f"; its last lines:{last_lines}" if last_lines else "")
        ) from None
    if reply.profile is None:
        kind: type[GpuyardError] = getattr(errors, reply.kind)
        raise kind(reply.message)
    return reply.profile


def find_shape(workload: Workload) -> TransformerShape | None:
    """Return the shape, or None if the model is not a transformer that gpuyard knows by shape."""
    model = workload.model
    if not isinstance(model, str):
        return model
    if model.endswith(".json"):
        from gpuyard.workloads.hugging_face import read_hugging_face_config

        directory = workload.file.parent if workload.file else Path()
        return read_hugging_face_config(directory / model)
    return transformers().get(model).shape if model in transformers() else None


def has_profile(workload: Workload) -> bool:
    """Return whether gpuyard can profile the model layer by layer, as data-parallel predictions need."""
    model = workload.model
    if not isinstance(model, str) or model.endswith(".json"):
        return False
    return model in models() or model not in transformers()


def advise_sharding(workload: Workload) -> str:
    """Return how to divide the model among GPUs, as a clause; empty if it is no transformer."""
    if find_shape(workload) is not None:
        return "to divide the model among GPUs, use gpuyard predict --strategy auto"
    if ":" in workload.model_name:
        return "to divide a transformer among GPUs, give its shape as 'model'"
    return ""


def needs_layout(workload: Workload, strategy: str | None, options_named: bool) -> bool:
    """Return whether a prediction needs a parallel layout: asked for, or the only way to know the model."""
    requested = options_named or strategy in ("fsdp", "megatron", "auto")
    return requested or workload.parallel is not None or not has_profile(workload)
