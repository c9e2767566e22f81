"""Faults of a lab's nodes: a CPU quota by cgroup, and GPUs that a recorded nvidia-smi reports or does not."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuyard.run.places import LabNodes
from gpuyard.run.process import Command

RECORDED = Path(__file__).parents[2] / "hardware/recorded/smi-xml/t4-passthrough-v11.xml"
_CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000
_JOIN = 'echo $$ > "$0" && exec "$@"'
# nodes have their own names: a lab's by address, Slurm's in a variable
_SMI = '#!/bin/sh\nnode="${SLURMD_NODENAME:-$(hostname)}"\ncat "$0.$node.xml" 2>/dev/null || cat "$0.xml"\n'


@dataclass(frozen=True)
class ThrottledNodes(LabNodes):
    """A lab in which the processes of one node join a control group."""

    throttled: str = ""
    group: Path = Path()

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        command = super().command(node, argv, environment)
        if command.node != self.throttled:
            return command
        join = ("sh", "-c", _JOIN, str(self.group / "cgroup.procs"))
        return Command(command.node, (*join, *command.argv), command.environment)


@contextlib.contextmanager
def cpu_quota(share: float) -> Iterator[Path]:
    """Create a control group whose processes get this share of one core; skip the test if that is not possible."""
    quota = str(int(share * _PERIOD_MICROSECONDS))
    version_1 = (_CGROUPS / "cpu").is_dir()
    group = (_CGROUPS / "cpu" if version_1 else _CGROUPS) / f"gpuyard-test-{os.getpid()}"
    try:
        group.mkdir()
        if version_1:
            (group / "cpu.cfs_quota_us").write_text(quota)
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"this machine cannot set a CPU quota: {error.strerror}")
    try:
        yield group
    finally:
        group.rmdir()


def install_nvidia_smi(directory: Path, gpus: int, missing: Mapping[str, int]) -> None:
    """Write an nvidia-smi that prints a recorded T4 as often as the node has GPUs."""
    directory.mkdir(exist_ok=True)
    program = directory / "nvidia-smi"
    program.write_text(_SMI)
    program.chmod(0o755)
    text = RECORDED.read_text()
    gpu = re.search(r"    <gpu .*</gpu>\n", text, re.DOTALL)
    assert gpu is not None
    for suffix, count in {"": gpus, **{f".{node}": n for node, n in missing.items()}}.items():
        document = text.replace(gpu[0], gpu[0] * count)
        Path(f"{program}{suffix}.xml").write_text(document)
