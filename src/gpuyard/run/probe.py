"""The GPUs of nodes: `python -m gpuyard.run.probe` prints those of its node, and `probe_nodes` runs it on every node."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.process import Command, start, stop

if TYPE_CHECKING:
    from gpuyard.run.places.place import Place

_ANSWER_SECONDS = 120.0  # Importing torch from a busy file server is slow.
_LAST_LINES = 5
_PROBE = module_argv("gpuyard.run.probe")


class NodeProbe(BaseModel):
    """A node's answer, printed as one line of JSON."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # A newer gpuyard may add keys.

    gpus: tuple[str, ...]
    """The names of the GPUs that torch can use."""


def cuda_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that torch can use; import torch only if there is a driver."""
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


def probe_nodes(place: "Place") -> tuple[NodeProbe, ...]:
    """Probe all nodes of a place at once."""
    probes = []
    for command, answer in ask_nodes(place, _PROBE, range(len(place.nodes)), _ANSWER_SECONDS):
        if isinstance(answer, NodeSilence):
            raise GpuyardError(
                f"{command.node} did not report its GPUs within {_ANSWER_SECONDS:.0f} s; check that it is up"
            )
        probe = _parse(answer.output)
        if probe is None:
            raise _describe_failure(command, answer.errors + answer.output)
        probes.append(probe)
    return tuple(probes)


@dataclass(frozen=True)
class NodeAnswer:
    """The output of a program that ran on a node."""

    output: bytes
    errors: bytes


@dataclass(frozen=True)
class NodeSilence:
    """A program that did not finish on its node in time."""

    seconds: float


def ask_nodes(
    place: "Place", argv: Sequence[str], nodes: Iterable[int], timeout_seconds: float
) -> list[tuple[Command, NodeAnswer | NodeSilence]]:
    """Run a program on these nodes at once, and return its output on each; stop what is late."""
    commands = [place.command(node, argv, import_path()) for node in nodes]
    started = []
    answers: list[tuple[Command, NodeAnswer | NodeSilence]] = []
    with contextlib.ExitStack() as until_end:
        stderr = [until_end.enter_context(tempfile.TemporaryFile()) for _ in commands]
        try:
            for command, file in zip(commands, stderr, strict=True):
                started.append((command, start(command, file)))
            deadline = time.monotonic() + timeout_seconds
            for (command, process), file in zip(started, stderr, strict=True):
                try:
                    output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    answers.append((command, NodeSilence(timeout_seconds)))
                    continue
                file.seek(0)
                answers.append((command, NodeAnswer(output, file.read())))
        except OSError as error:
            raise GpuyardError(f"the nodes cannot be probed: {error.strerror}") from error
        finally:
            stop(started)
            for _, process in started:
                if process.stdout is not None:
                    process.stdout.close()
    return answers


def _parse(output: bytes) -> NodeProbe | None:
    for line in reversed(output.splitlines()):  # A host's banner may precede it.
        with contextlib.suppress(ValidationError):
            return NodeProbe.model_validate_json(line)
    return None


def _describe_failure(command: Command, output: bytes) -> GpuyardError:
    last_lines = format_last_lines(output)
    return GpuyardError(
        f"{command.node} did not report its GPUs; check that it is reachable and has gpuyard at the same path as "
        f"this machine. Its output:\n{last_lines}"
    )


def format_last_lines(output: bytes) -> str:
    """Format the last lines of a program's output for an error message."""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  (nothing)"


if __name__ == "__main__":
    sys.stdout.write(NodeProbe(gpus=cuda_gpus()).model_dump_json() + "\n")
