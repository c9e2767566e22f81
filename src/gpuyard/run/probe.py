"""The GPUs of nodes: `python -m gpuyard.run.probe` prints those of its node, and `probe_nodes` runs it on every node."""

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
    commands = [place.command(node, _PROBE, import_path()) for node in range(len(place.nodes))]
    started = []
    with contextlib.ExitStack() as until_end:
        stderr = [until_end.enter_context(tempfile.TemporaryFile()) for _ in commands]
        try:
            for command, file in zip(commands, stderr, strict=True):
                started.append((command, start(command, file)))
            deadline = time.monotonic() + _ANSWER_SECONDS
            probes = []
            for (command, process), file in zip(started, stderr, strict=True):
                try:
                    output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise GpuyardError(
                        f"{command.node} did not report its GPUs within {_ANSWER_SECONDS:.0f} s; check that it is up"
                    ) from None
                probe = _parse(output)
                if probe is None:
                    file.seek(0)
                    raise _describe_failure(command, file.read() + output)
                probes.append(probe)
        except OSError as error:
            raise GpuyardError(f"the nodes cannot be probed: {error.strerror}") from error
        finally:
            stop(started)
            for _, process in started:
                if process.stdout is not None:
                    process.stdout.close()
    return tuple(probes)


def _parse(output: bytes) -> NodeProbe | None:
    for line in reversed(output.splitlines()):  # A host's banner may precede it.
        with contextlib.suppress(ValidationError):
            return NodeProbe.model_validate_json(line)
    return None


def _describe_failure(command: Command, output: bytes) -> GpuyardError:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    last_lines = "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  (nothing)"
    return GpuyardError(
        f"{command.node} did not report its GPUs; check that it is reachable and has gpuyard at the same path as "
        f"this machine. Its output:\n{last_lines}"
    )


if __name__ == "__main__":
    sys.stdout.write(NodeProbe(gpus=cuda_gpus()).model_dump_json() + "\n")
