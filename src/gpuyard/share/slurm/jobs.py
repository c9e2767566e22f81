"""Leases as Slurm jobs: run the command with srun, and list Slurm's jobs the way `who` lists leases."""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share import processes
from gpuyard.share.clock import Clock, iso_timestamp
from gpuyard.share.config import ShareConfig
from gpuyard.share.gpus import Reading, describe_gpu
from gpuyard.share.models import MAX_COMMAND_CHARACTERS, WHOLE, LeaseRequest, NoneFree
from gpuyard.share.slurm.accounts import SHARDS
from gpuyard.slurm import client
from gpuyard.slurm.gpu_jobs import GpuJob, list_gpu_jobs

# The job's number is known only after it has started.
_SET_LEASE_ID = (
    f"{processes.LEASE_VARIABLE}=$SLURM_JOB_ID; export {processes.LEASE_VARIABLE}; "
    'unset SLURM_EXIT_IMMEDIATE; exec "$@"'
)


def build_srun_command(
    request: LeaseRequest,
    command: Sequence[str],
    config: ShareConfig,
    wait_seconds: float | None = None,
    *,
    terminal: bool = False,
) -> list[str]:
    """Build the srun command that runs a command as a lease."""
    if request.gpus:
        raise UserMistake("Slurm chooses the GPUs; pass a number of GPUs instead of --gpu-ids")
    words = ["srun", "--nodes=1", "--ntasks=1", "--export=ALL", "--disable-status"]
    words.append(f"--gres={_format_gres(request, config)}")
    words.append(f"--job-name={os.path.basename(command[0])}")  # noqa: PTH119 - it need not be a path
    if request.seconds is not None:
        words.append(f"--time={math.ceil(request.seconds / 60)}")
    if not request.waits:
        words.append("--immediate")
    elif wait_seconds is not None:
        words.append(f"--immediate={max(1, math.ceil(wait_seconds))}")
    if request.project:
        words.append(f"--comment={request.project}")
    if terminal:
        words.append("--pty")
    return [*words, "--", "sh", "-c", _SET_LEASE_ID, "sh", *command]


def run_as_job(
    request: LeaseRequest, command: Sequence[str], config: ShareConfig, wait_seconds: float | None
) -> NoReturn:
    """Replace this process with srun, which exits with the command's status."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = build_srun_command(request, command, config, wait_seconds, terminal=terminal)
    environment = dict(os.environ)
    if "SLURM_JOB_ID" in environment:  # a lease inside a job is a separate job
        outer = {n for n in environment if n.startswith("SLURM_") and n != "SLURM_CONF"}
        environment = {n: value for n, value in environment.items() if n not in outer}
    environment["SLURM_EXIT_IMMEDIATE"] = str(NoneFree.exit_status)
    client.require_programs("srun")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606
    except OSError as error:
        raise GpuyardError(f"srun cannot be started: {error.strerror}") from error


def cancel_job(id_: str) -> None:
    """Cancel a job; Slurm decides whether this user may."""
    if not id_.isdigit():
        raise UserMistake(f"lease {id_!r} not found; `gpuyard who` lists the current ones")
    client.run("scancel", id_)


def describe_jobs(config: ShareConfig, readings: Mapping[int, Reading]) -> dict[str, Any]:
    """Describe Slurm's jobs with the keys of leases; None stands for anything that Slurm does not report."""
    jobs, clock = list_gpu_jobs(), Clock()
    return {
        "gpus": [
            {
                **describe_gpu(gpu, readings.get(gpu.index, Reading()), clock),
                "drained": False,
                "leases": [
                    {
                        **_describe_job(job),
                        "since": _format_time(job.start_time),
                        "elapsed_seconds": _count_seconds(job.start_time, clock),
                        "until": _format_time(job.end_time) if job.time_limit is not None else None,
                        "project": job.comment or None,
                    }
                    for job in jobs
                    if not job.waits and job.uses_gpu(gpu.index)
                ],
            }
            for gpu in config.gpus
        ],
        "queue": [
            {
                "position": position,
                **_describe_job(job),
                "count": job.gpu_count,
                "gpus": [],
                "since": _format_time(job.submit_time),
                "elapsed_seconds": _count_seconds(job.submit_time, clock),
            }
            for position, job in enumerate((job for job in jobs if job.waits), 1)
        ],
        "reservations": [],
        "violations": [],
        "guard": config.guard,
    }


def check_slurm() -> None:
    """Check that Slurm answers and has GPUs."""
    client.require_programs("srun")
    if "gpu" not in client.run("sinfo", "--noheader", "--format=%G"):
        raise GpuyardError(
            "Slurm has no GPUs; copy gres.conf and slurm.conf from "
            "`gpuyard share export slurm` to /etc/slurm and restart its daemons"
        )


def _format_gres(request: LeaseRequest, config: ShareConfig) -> str:
    parts = request.required_parts([config.gpu(i).memory_bytes for i in config.indices])
    if parts is None or parts > WHOLE:
        raise UserMistake("no GPU has that much memory; lease whole GPUs, without --gpu-memory")
    if parts == WHOLE:
        return f"gpu:{request.count}"
    if request.count > 1:
        raise UserMistake("Slurm can share one GPU per job, not several; request 1 GPU")
    return f"shard:{math.ceil(parts * SHARDS / WHOLE)}"


def _describe_job(job: GpuJob) -> dict[str, Any]:
    return {
        "id": str(job.job_id),
        "user": job.user_name,
        "pid": None,
        "command": job.name[:MAX_COMMAND_CHARACTERS],
        "share": 1.0 if job.shards is None else job.shards / SHARDS,
    }


def _count_seconds(start: int | None, clock: Clock) -> float | None:
    return max(0.0, clock.wall() - start) if start else None


def _format_time(seconds: int | None) -> str | None:
    try:
        return iso_timestamp(seconds) if seconds else None
    except (ValueError, OverflowError, OSError):  # datetime cannot represent this time
        return None
