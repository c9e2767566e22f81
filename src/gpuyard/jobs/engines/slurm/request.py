"""A submission as a value: a batch script that consists of data and a fixed program, so that no shell parses the data."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from gpuyard.errors import UserMistake, quote
from gpuyard.jobs.engines.base import Request
from gpuyard.jobs.engines.slurm.records import list_array_tasks
from gpuyard.jobs.engines.slurm.script import program
from gpuyard.jobs.engines.slurm.script.launch import (
    RENDEZVOUS_OPTIONS,
    count_torchrun_words,
    parse_torchrun_options,
)
from gpuyard.jobs.engines.slurm.script.nodes import COMMENT
from gpuyard.jobs.engines.slurm.sizing import (
    JobShape,
    SpeedEstimate,
    choose_shape,
    read_cluster_description,
)
from gpuyard.jobs.job import Job
from gpuyard.policies import Policy, get_policy
from gpuyard.slurm.client import SlurmConfig, format_duration
from gpuyard.slurm.nodes import PartitionNodes
from gpuyard.specs.engines.slurm import SlurmOptions

_UNQUOTED = re.compile(r"[\w./:@%+,=\[\]-]+", re.ASCII)
_MAX_NAME = 200
_MAX_SIGNAL_SECONDS = 65535
_SIGNAL_MARGIN_SECONDS = 10
# A site or a user sets these for all of their jobs. sbatch does not see the variables, so the script repeats them.
_DEFAULTED = ("partition", "account", "qos", "reservation")
_NOTE = """
# Written by gpuyard for one job. JOB is the command and its settings. The program after it is the same in every script:
# it starts the command on the nodes without a shell, and keeps its output and its result in the job's directory.
"""
_Options = list[tuple[str, str | None]]


@dataclass(frozen=True)
class SlurmRequest(Request):
    """A batch job; Slurm only has to give it a number."""

    cluster: str
    directory: Path
    """The job's directory with its logs, which all nodes must share."""
    min_nodes: int
    max_nodes: int
    gpus_per_node: int
    options: tuple[tuple[str, str | None], ...]
    after: tuple[int | str, ...] = ()
    """Numbers of the jobs that must succeed first; `17_3` is one task of an array."""
    speed: SpeedEstimate | None = None

    @property
    def elastic(self) -> bool:
        """True if its nodes can change while it runs."""
        spec, argv = self.job.spec, list(self.job.spec.command)
        torchrun_words = count_torchrun_words(argv)
        options = parse_torchrun_options(argv[torchrun_words:])
        return (
            spec.checkpoint is not None
            and spec.workload is not None
            and spec.nodes is None
            and spec.gpus.min < spec.gpus.max
            and _slurm_options(self.job).array is None
            and torchrun_words > 0
            and not options & (RENDEZVOUS_OPTIONS | {"--nnodes"})
        )

    def text(self) -> str:
        """Return the script exactly as sbatch gets it."""
        options = list(self.options)
        if self.after:
            options.append(("dependency", "afterok:" + ":".join(map(str, self.after))))
            options.append(("kill-on-invalid-dep", "yes"))
        lines = ["#!/usr/bin/env python3"]
        lines += [f"#SBATCH --{name}{_quote_value(value)}" for name, value in options]
        if not self.cluster:
            described = _slurm_options(self.job).cluster is not None
            nodes = "match slurm.cluster" if described else "have as many GPUs as the job needs"
            lines += ["", f"# Slurm was not asked; its nodes are assumed to {nodes}."]
        if self.speed is not None and self.speed.rationale:
            lines += ["", *(f"# {line}" for line in wrap(self.speed.rationale, 98))]
        job = _format_literal(self._job_document())
        return (
            "\n".join(lines)
            + f"\n{_NOTE}JOB = {job}\n\n{program()}\n\nmain(JOB, sys.argv[1:], __file__)\n"
        )

    def document(self) -> dict[str, Any]:
        return {
            **super().document(),
            "cluster": self.cluster,
            "directory": str(self.directory),
            "min_nodes": self.min_nodes,
            "max_nodes": self.max_nodes,
            "gpus_per_node": self.gpus_per_node,
            "options": [list(option) for option in self.options],
            "after": list(self.after),
            "speed": None if self.speed is None else asdict(self.speed),
        }

    def _job_document(self) -> dict[str, Any]:
        spec = self.job.spec
        checkpoint = spec.checkpoint
        requeues = _slurm_options(self.job).walltime is not None
        return {
            "uuid": self.job.uuid,
            "argv": list(spec.command),
            "cwd": str(self.job.cwd),
            "environment": self.job.environment(self.max_nodes * self.gpus_per_node),
            "directory": str(self.directory),
            "gpus_per_node": self.gpus_per_node,
            "retries": {"lost": spec.retries.lost, "failed": spec.retries.failed},
            "checkpoint": checkpoint
            and {
                "command": checkpoint.command and list(checkpoint.command),
                "signal": checkpoint.signal,
                "seconds": checkpoint.time,
            },
            "requeues": requeues,
            "elastic": self.elastic,
            "time_limit": spec.time_limit if requeues else None,
        }


def create_request(
    job: Job,
    config: SlurmConfig,
    nodes: PartitionNodes,
    directory: Path,
    after: Sequence[int | str],
    *,
    policy: Policy | None = None,
    exclude: Sequence[str] = (),
) -> SlurmRequest:
    """Create the request; raise if the cluster cannot run the job. The policy chooses from a range of GPUs.

    The job must not use the nodes to `exclude`, in addition to those that it excludes itself.
    """
    shape, speed = choose_shape(job, nodes, config.cluster, policy or get_policy("fifo"))
    list_array_tasks(_slurm_options(job).array)
    return SlurmRequest(
        job=job,
        cluster=config.cluster,
        directory=directory,
        min_nodes=shape.min_nodes,
        max_nodes=shape.nodes,
        gpus_per_node=shape.gpus_per_node,
        options=tuple(_list_options(job, config, shape, exclude)),
        after=tuple(after),
        speed=speed,
    )


def find_partition(job: Job) -> str | None:
    """Return the partition that the job or $SBATCH_PARTITION names."""
    return _option_or_default(job, "partition")


def _slurm_options(job: Job) -> SlurmOptions:
    return job.spec.slurm or SlurmOptions()


def _option_or_default(job: Job, name: str) -> str | None:
    value: str | None = getattr(_slurm_options(job), name)
    if value:
        return value
    variable = f"SBATCH_{name.upper()}"
    return _check_value(variable, os.environ.get(variable))


def _list_options(
    job: Job, config: SlurmConfig, shape: JobShape, exclude: Sequence[str]
) -> _Options:
    spec, own = job.spec, _slurm_options(job)
    gpus, per_gpu = shape.gpus_per_node, config.supports_gpus_per_node
    nodes = (
        f"{shape.nodes}" if shape.min_nodes == shape.nodes else f"{shape.min_nodes}-{shape.nodes}"
    )
    gres = f"{own.gpu_type}:{gpus}" if own.gpu_type else f"{gpus}"
    megabytes = math.ceil((own.memory_per_gpu or 0) / 2**20)
    printable_name = "".join(letter if letter.isprintable() else "?" for letter in job.name)
    texts = {
        "job-name": printable_name[:_MAX_NAME],
        "comment": f"{COMMENT}{job.uuid}",
        **{name: _option_or_default(job, name) for name in _DEFAULTED},
        "constraint": own.constraint,
        "exclude": ",".join(filter(None, (own.exclude, *exclude))),
        "array": own.array,
        "nodes": nodes,
        "gpus-per-node": gres if per_gpu else None,
        "gres": None if per_gpu else f"gpu:{gres}",
    }
    if own.cpus_per_gpu and per_gpu:
        texts["cpus-per-gpu"] = str(own.cpus_per_gpu)
    elif own.cpus_per_gpu:
        texts["cpus-per-task"] = str(own.cpus_per_gpu * gpus)
    if megabytes and per_gpu:
        texts["mem-per-gpu"] = f"{megabytes}M"
    elif megabytes:
        texts["mem"] = f"{megabytes * gpus}M"
    options: _Options = [
        (name, value if name == "job-name" else _check_value(f"slurm.{name}", value))
        for name, value in texts.items()
        if value
    ]
    if own.exclusive:
        options.append(("exclusive", None))
    options += _list_placement_options(job, config, shape.nodes)
    options += _list_time_options(job)
    if spec.priority < 0:
        options.append(("nice", str(-spec.priority)))
    return [
        *options,
        ("requeue" if spec.retries.lost or own.walltime else "no-requeue", None),
        ("export", "ALL"),
        ("chdir", "/"),
        ("output", "/dev/null"),  # The script writes the output to its own files.
    ]


def _list_placement_options(job: Job, config: SlurmConfig, nodes: int) -> _Options:
    """Ask for nodes on as few switches as possible if Slurm knows the switches; after a while Slurm ignores this."""
    own, switches = _slurm_options(job), 0
    if own.switches is not None:
        switches = own.switches
    elif config.has_topology:
        cluster = read_cluster_description(job)
        rack = cluster.nodes_per_rack if cluster else None
        switches = math.ceil(nodes / rack) if rack else 1
    options: _Options = []
    if nodes > 1 and switches:
        options.append(("switches", f"{switches}@{format_duration(own.switches_wait)}"))
    if own.contiguous:
        options.append(("contiguous", None))
    return options


def _list_time_options(job: Job) -> _Options:
    spec, own = job.spec, _slurm_options(job)
    seconds = own.walltime or spec.time_limit
    if own.walltime and spec.checkpoint is None:
        raise UserMistake(
            "slurm.walltime stops a run and continues it in the next one, which needs a checkpoint; "
            "to stop the job for good, use time_limit"
        )
    if seconds is None:
        return []
    options: _Options = [("time", format_duration(seconds))]
    if spec.checkpoint is not None:
        before = math.ceil(spec.checkpoint.time) + _SIGNAL_MARGIN_SECONDS
        if before >= seconds:
            raise UserMistake(
                f"checkpoint.time is {spec.checkpoint.time:g} s, which does not fit into the job's "
                f"{seconds:g} s; increase the job's time or decrease checkpoint.time"
            )
        options.append(("signal", f"B:USR1@{min(before, _MAX_SIGNAL_SECONDS)}"))
    return options


def _check_value(source: str, value: str | None) -> str | None:
    """Refuse a value that sbatch would read as another line or another option of the script."""
    if value and (value.startswith("-") or not value.isprintable()):
        raise UserMistake(
            f"{source} must be one line of printable characters that does not start with a dash, "
            f"got {quote(value)}; correct or unset it"
        )
    return value


def _quote_value(value: str | None) -> str:
    """Quote a value for sbatch, which treats a backslash as an escape even in quotes."""
    if value is None:
        return ""
    if _UNQUOTED.fullmatch(value):
        return f"={value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'="{escaped}"'


def _format_literal(value: Any, indent: str = "") -> str:
    """Format a value as an ASCII Python literal with one entry per line."""
    inner = indent + "    "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{key!a}: {_format_literal(v, inner)},\n" for key, v in value.items()]
        return "{\n" + "".join(lines) + indent + "}"
    if isinstance(value, list) and value:
        lines = [f"{inner}{_format_literal(v, inner)},\n" for v in value]
        return "[\n" + "".join(lines) + indent + "]"
    return ascii(value)
