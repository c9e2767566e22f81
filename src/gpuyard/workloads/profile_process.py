"""A user's own model is profiled in a process of its own: `python -m gpuyard.workloads.profile_process`.

So whatever its code does when it is imported (ends the program, reads the arguments, prints, crashes) ends and
disturbs nothing here. The process gets one line of JSON on stdin and answers with one on what was its stdout. When
its stdin ends, who started it is gone, and so is this process.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gpuyard import errors
from gpuyard.catalog.models import ModelProfile
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.interpreter import import_path, module_argv
from gpuyard.printable import printable
from gpuyard.specs import Workload
from gpuyard.specs.workload import PackedWorkload

PROFILING_SECONDS = 600.0  # a model that "meta" can't take is run for real
_MOST_ANSWER_BYTES = 64 * 2**20
_LAST_BYTES = 8 * 2**10
_LAST_LINES = 10
_DRAIN_SECONDS = 5.0
_MODULE = "gpuyard.workloads.profile_process"
_MANY_OBJECTS = 100_000  # before it looks for garbage: it imports much, and soon ends


class _Question(BaseModel):
    model_config = ConfigDict(frozen=True)

    workload: PackedWorkload


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    profile: ModelProfile | None = None
    kind: Literal["GpuyardError", "MissingRequirement", "UserMistake"] = "GpuyardError"
    sentence: str = ""


def profile_elsewhere(workload: Workload, most_seconds: float = PROFILING_SECONDS) -> ModelProfile:
    """The profile that the other process finds; raises what it refuses, or how it ended."""
    question = _Question(workload=workload)
    with subprocess.Popen(
        module_argv(_MODULE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that what it starts can be ended with it
        # what it has printed is seen however it ends
        env={**os.environ, **import_path(), "PYTHONUNBUFFERED": "1"},
    ) as process:
        said = _Heard(process.stdout, first=_MOST_ANSWER_BYTES)
        words = _Heard(process.stderr, last=_LAST_BYTES)
        try:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(question.model_dump_json().encode() + b"\n")
                    process.stdin.flush()
            status = process.wait(most_seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        answer, tail = said.all(), words.all()
    return _profile(workload.model, answer, tail, _how(status, most_seconds))


class _Heard:
    """What comes out of a pipe, of which only the first or the last bytes are kept."""

    def __init__(self, pipe: IO[bytes] | None, *, first: int = 0, last: int = 0) -> None:
        self._pipe, self._first, self._last = pipe, first, last
        self._kept = b""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def all(self) -> bytes:
        self._thread.join(_DRAIN_SECONDS)
        return self._kept

    def _listen(self) -> None:
        while self._pipe is not None and (more := self._pipe.read1(2**16)):  # type: ignore[attr-defined]
            kept = self._kept + more
            self._kept = kept[: self._first] if self._first else kept[-self._last :]


def _how(status: int | None, most_seconds: float) -> str:
    if status is None:
        return f"did not come to an end within {most_seconds:.0f} s"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _profile(model: str, answer: bytes, tail: bytes, how: str) -> ModelProfile:
    try:
        found = _Answer.model_validate_json(answer)
    except ValidationError:
        lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
        shown = "".join(f"\n  {printable(line)}" for line in lines[-_LAST_LINES:])
        raise UserMistake(
            f"{model} has no profile: the process that ran its code {how} before it had one"
            + (f"; its last lines:{shown}" if shown else "")
        ) from None
    if found.profile is None:
        kind: type[GpuyardError] = getattr(errors, found.kind)
        raise kind(found.sentence)
    return found.profile


def main() -> None:
    """The other process."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workload = _Question.model_validate_json(_question()).workload
    sys.argv = [workload.model.partition(":")[0]]
    gc.set_threshold(_MANY_OBJECTS)
    from gpuyard.workloads.profiles import profile_here

    try:
        answer = _Answer(profile=profile_here(workload))
    except GpuyardError as error:
        kinds = (MissingRequirement, UserMistake)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "GpuyardError")
        answer = _Answer.model_validate({"kind": kind, "sentence": str(error)})
    answers.write(answer.model_dump_json(round_trip=True))  # without what is computed from the rest
    answers.close()
    sys.stderr.flush()
    os._exit(0)  # at once: threads of the user's code don't hold it up


def _question() -> bytes:
    """From then on stdin has nothing to read for a user's code, and its end is waited for beside it."""
    said = b""
    while not said.endswith(b"\n") and (more := os.read(0, 2**16)):
        said += more
    from_parent = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_leave_with_parent, args=(from_parent,), daemon=True).start()
    return said


def _leave_with_parent(from_parent: int) -> None:
    while os.read(from_parent, 1024):
        pass
    os.killpg(0, signal.SIGKILL)  # with what the user's code has started


if __name__ == "__main__":
    main()
