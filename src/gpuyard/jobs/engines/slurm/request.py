"""What would be submitted to Slurm: a batch script that is data and a fixed program, and nothing that a shell reads."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.base import Request
from gpuyard.jobs.engines.slurm.commands import PartitionNodes, SlurmConfig
from gpuyard.jobs.engines.slurm.script import program
from gpuyard.jobs.engines.slurm.script.launch import OWN_MEETING, given_options, words_of_torchrun
from gpuyard.jobs.engines.slurm.script.nodes import COMMENT
from gpuyard.jobs.engines.slurm.sizing import JobShape, Speed, chosen, machines_of
from gpuyard.jobs.job import Job
from gpuyard.jobs.policies import Policy, policy_of
from gpuyard.specs.engines.slurm import SlurmOptions

_PLAIN = re.compile(r"[\w./:@%+,=\[\]-]+", re.ASCII)
_LONGEST_NAME = 200
_MOST_TASKS = 10_000
_LATEST_SIGNAL_SECONDS = 65535
_SIGNAL_MARGIN_SECONDS = 10
# what a site or a user sets for all of their jobs; the script says it, where the job does not
_DEFAULTS = {
    name: f"SBATCH_{name.upper()}" for name in ("partition", "account", "qos", "reservation")
}
_NOTE = """
# Written by gpuyard for one job. JOB is what to run; the program after it, the same in every script, starts
# it on the nodes without a shell and keeps what it prints, and how it ends, in the job's directory.
"""


@dataclass(frozen=True)
class SlurmRequest(Request):
    """Everything is decided but the number, which Slurm gives."""

    cluster: str
    directory: Path
    """Of this job, with its logs; all nodes have to see it."""
    fewest_nodes: int
    most_nodes: int
    gpus_per_node: int
    options: tuple[tuple[str, str | None], ...]
    after: tuple[int | str, ...] = ()
    """Numbers of jobs that have to succeed first; of one task of an array, like `17_3`."""
    speed: Speed | None = None
    """Of the job on these GPUs, where its curve is known."""

    @property
    def elastic(self) -> bool:
        """Whether its nodes can change while it runs."""
        spec, words = self.job.spec, list(self.job.spec.command)
        told = words_of_torchrun(words)
        return (
            spec.checkpoint is not None
            and spec.workload is not None
            and spec.nodes is None
            and spec.gpus.min < spec.gpus.max
            and _options(self.job).array is None
            and told > 0
            and not given_options(words[told:]) & (OWN_MEETING | {"--nnodes"})
        )

    def text(self) -> str:
        """The script, exactly as sbatch gets it."""
        options = list(self.options)
        if self.after:
            options.append(("dependency", "afterok:" + ":".join(map(str, self.after))))
            options.append(("kill-on-invalid-dep", "yes"))
        lines = ["#!/usr/bin/env python3"]
        lines += [f"#SBATCH --{name}{_value(value)}" for name, value in options]
        if not self.cluster:
            described = _options(self.job).cluster is not None
            taken = (
                "as slurm.cluster describes it" if described else "to have as many GPUs as it takes"
            )
            lines += ["", f"# Slurm was not asked: a node is taken {taken}."]
        if self.speed is not None and self.speed.words:
            lines += ["", *wrap(self.speed.words, 100, initial_indent="# ", subsequent_indent="# ")]
        said = _literal(self._job_document())
        return (
            "\n".join(lines)
            + f"\n{_NOTE}JOB = {said}\n\n{program()}\n\nmain(JOB, sys.argv[1:], __file__)\n"
        )

    def document(self) -> dict[str, Any]:
        return {
            **super().document(),
            "cluster": self.cluster,
            "directory": str(self.directory),
            "fewest_nodes": self.fewest_nodes,
            "most_nodes": self.most_nodes,
            "gpus_per_node": self.gpus_per_node,
            "options": [list(option) for option in self.options],
            "after": list(self.after),
            "speed": None if self.speed is None else self.speed.document(),
        }

    def _job_document(self) -> dict[str, Any]:
        spec = self.job.spec
        checkpoint = spec.checkpoint
        resumes = _options(self.job).walltime is not None
        return {
            "uuid": self.job.uuid,
            "argv": list(spec.command),
            "cwd": str(self.job.cwd),
            "environment": self.job.environment(self.most_nodes * self.gpus_per_node),
            "directory": str(self.directory),
            "gpus_per_node": self.gpus_per_node,
            "retries": {"lost": spec.retries.lost, "failed": spec.retries.failed},
            "checkpoint": None
            if checkpoint is None
            else {
                "command": None if checkpoint.command is None else list(checkpoint.command),
                "signal": checkpoint.signal,
                "seconds": checkpoint.time,
            },
            "resumes": resumes,
            "elastic": self.elastic,
            "time_limit": spec.time_limit if resumes else None,
        }


def make_request(
    job: Job,
    config: SlurmConfig,
    nodes: PartitionNodes,
    directory: Path,
    after: Sequence[int | str],
    *,
    policy: Policy | None = None,
) -> SlurmRequest:
    """Raises where the job asks for what this cluster can't give. The policy says how many GPUs of a range."""
    shape, speed = chosen(job, nodes, config.cluster, policy or policy_of("fifo"))
    tasks_of_array(_options(job).array)
    return SlurmRequest(
        job=job,
        cluster=config.cluster,
        directory=directory,
        fewest_nodes=shape.fewest_nodes,
        most_nodes=shape.nodes,
        gpus_per_node=shape.gpus_per_node,
        options=tuple(_sbatch_options(job, config, shape)),
        after=tuple(after),
        speed=speed,
    )


def tasks_of_array(array: str | None) -> Sequence[str | None]:
    """0-9:2,15%4 → 0, 2, 4, 6, 8, 15; a job that is no array is its only part."""
    if array is None:
        return (None,)
    ranges = []
    for part in array.partition("%")[0].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        ranges.append(range(int(first), int(last or first) + 1, int(step or 1) or 1))
    if sum(map(len, ranges)) > _MOST_TASKS:
        raise UserMistake(f"an array has at most {_MOST_TASKS:,} tasks, got {array}")
    return tuple(map(str, dict.fromkeys(task for one in ranges for task in one)))


def default_partition(job: Job) -> str | None:
    return _options(job).partition or os.environ.get(_DEFAULTS["partition"])


def _options(job: Job) -> SlurmOptions:
    return job.spec.slurm or SlurmOptions()


def _sbatch_options(job: Job, config: SlurmConfig, shape: JobShape) -> list[tuple[str, str | None]]:
    spec, own = job.spec, _options(job)
    fewest, most, gpus = shape.fewest_nodes, shape.nodes, shape.gpus_per_node
    found: list[tuple[str, str | None]] = [
        ("job-name", _slurm_name(job.name)),
        ("comment", f"{COMMENT}{job.uuid}"),
    ]
    for name in ("partition", "account", "qos", "reservation"):
        value = getattr(own, name) or os.environ.get(_DEFAULTS[name])
        if value:
            found.append((name, value))
    plain = ("constraint", "exclude", "array")
    found += [(name, getattr(own, name)) for name in plain if getattr(own, name)]
    kind = f"{own.gpu_type}:" if own.gpu_type else ""
    found += [
        ("nodes", str(most) if fewest == most else f"{fewest}-{most}"),
        ("gpus-per-node", f"{kind}{gpus}")
        if config.gpus_per_node
        else ("gres", f"gpu:{kind}{gpus}"),
    ]
    if own.cpus_per_gpu:
        each, all_ = str(own.cpus_per_gpu), str(own.cpus_per_gpu * gpus)
        found.append(("cpus-per-gpu", each) if config.gpus_per_node else ("cpus-per-task", all_))
    if own.memory_per_gpu:
        mega = math.ceil(own.memory_per_gpu / 2**20)
        per_gpu = (
            ("mem-per-gpu", f"{mega}M") if config.gpus_per_node else ("mem", f"{mega * gpus}M")
        )
        found.append(per_gpu)
    if own.exclusive:
        found.append(("exclusive", None))
    found += _placement(job, config, most)
    found += _time(job)
    if spec.priority < 0:
        found.append(("nice", str(-spec.priority)))
    return [
        *found,
        ("requeue" if spec.retries.lost or own.walltime else "no-requeue", None),
        ("export", "ALL"),
        ("chdir", "/"),
        ("output", "/dev/null"),  # the script keeps what there is, in files that it makes itself
    ]


def _placement(job: Job, config: SlurmConfig, nodes: int) -> list[tuple[str, str | None]]:
    """Nodes at one switch, or at as few as hold them, where Slurm knows the switches: a hint that it need not follow for
    ever."""
    own, switches = _options(job), 0
    if own.switches is not None:
        switches = own.switches
    elif config.switches:
        machines = machines_of(job)
        rack = machines.nodes_per_rack if machines else None
        switches = math.ceil(nodes / rack) if rack else 1
    hints: list[tuple[str, str | None]] = []
    if nodes > 1 and switches:
        hints.append(("switches", f"{switches}@{_duration(own.switches_wait)}"))
    if own.contiguous:
        hints.append(("contiguous", None))
    return hints


def _time(job: Job) -> list[tuple[str, str | None]]:
    spec, own = job.spec, _options(job)
    seconds = own.walltime or spec.time_limit
    if own.walltime and spec.checkpoint is None:
        raise UserMistake(
            "slurm.walltime ends a run to go on in the next one, which needs a checkpoint; "
            "for a job that ends then, use time_limit"
        )
    if seconds is None:
        return []
    found: list[tuple[str, str | None]] = [("time", _duration(seconds))]
    if spec.checkpoint is not None:
        before = math.ceil(spec.checkpoint.time) + _SIGNAL_MARGIN_SECONDS
        if before >= seconds:
            raise UserMistake(
                f"writing a checkpoint may take {spec.checkpoint.time:g} s, and the job's time is only "
                f"{seconds:g} s; give it more time, or less to checkpoint.time"
            )
        found.append(("signal", f"B:USR1@{min(before, _LATEST_SIGNAL_SECONDS)}"))
    return found


def _slurm_name(name: str) -> str:
    """As its listings can show it; the record has the exact one."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown[:_LONGEST_NAME]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}"


def _value(value: str | None) -> str:
    """As sbatch reads it: a backslash means what follows it, in quotes too."""
    if value is None:
        return ""
    if _PLAIN.fullmatch(value):
        return f"={value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'="{escaped}"'


def _literal(value: Any, indent: str = "") -> str:
    """As Python reads it, in ASCII, with one entry a line."""
    inner = indent + "    "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{key!a}: {_literal(one, inner)},\n" for key, one in value.items()]
        return "{\n" + "".join(lines) + indent + "}"
    if isinstance(value, list) and value:
        return "[\n" + "".join(f"{inner}{_literal(one, inner)},\n" for one in value) + indent + "]"
    return ascii(value)
