"""What a node has for ranks: `python -m gpuyard.run.probe` says it there, and `ask` asks every node."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.process import Command, start, stop

if TYPE_CHECKING:
    from gpuyard.run.places.place import Place

_ANSWER_SECONDS = 120.0  # importing torch from a busy file server takes its time
_LAST_LINES = 5
_PROBE = module_argv("gpuyard.run.probe")


class NodeAnswer(BaseModel):
    """What a node says of itself, as one line of JSON."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer gpuyard may add keys

    gpus: tuple[str, ...]
    """The names of those that torch can use."""


def cuda_gpus() -> tuple[str, ...]:
    """The GPUs that torch can use; torch is only imported where a driver is."""
    driver = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))
    if not driver and shutil.which("nvidia-smi") is None:
        return ()
    try:
        import torch
    except ImportError:
        return ()
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def ask(place: "Place") -> tuple[NodeAnswer, ...]:
    """What each of its nodes answers; all are asked at once."""
    commands = [place.command(node, _PROBE, import_path()) for node in range(len(place.nodes))]
    started = []
    with contextlib.ExitStack() as until_end:
        stderr = [until_end.enter_context(tempfile.TemporaryFile()) for _ in commands]
        try:
            for command, file in zip(commands, stderr, strict=True):
                started.append((command, start(command, file)))
            deadline = time.monotonic() + _ANSWER_SECONDS
            answers = []
            for (command, process), file in zip(started, stderr, strict=True):
                try:
                    said, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise GpuyardError(
                        f"{command.node} has not answered for {_ANSWER_SECONDS:.0f} s"
                    ) from None
                found = _read(said)
                if found is None:
                    file.seek(0)
                    raise _silent(command, file.read() + said)
                answers.append(found)
        except OSError as error:
            raise GpuyardError(f"the nodes can't be asked: {error.strerror}") from error
        finally:
            stop(started)
            for _, process in started:
                if process.stdout is not None:
                    process.stdout.close()
    return tuple(answers)


def _read(said: bytes) -> NodeAnswer | None:
    for line in reversed(said.splitlines()):  # a host's banner may come before it
        with contextlib.suppress(ValidationError):
            return NodeAnswer.model_validate_json(line)
    return None


def _silent(command: Command, said: bytes) -> GpuyardError:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    shown = "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  (nothing)"
    return GpuyardError(
        f"{command.node} can't be asked for its GPUs; is it reachable, and gpuyard installed there at the "
        f"same path as here? It said:\n{shown}"
    )


if __name__ == "__main__":
    sys.stdout.write(NodeAnswer(gpus=cuda_gpus()).model_dump_json() + "\n")
