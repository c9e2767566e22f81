"""Slurm's command-line programs, each run with a timeout and without the user's display settings.

Every function raises `NoResponse`, always with the same message, if Slurm does not answer. It raises `GpuyardError` with
Slurm's own message if Slurm refuses the request.
"""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.errors import GpuyardError, MissingRequirement, NoResponse
from gpuyard.printable import make_printable

TIMEOUT_SECONDS = 20.0
SUBMIT_TIMEOUT_SECONDS = 60.0
_UNREACHABLE = re.compile(
    r"unable to contact|connection (?:refused|reset|timed out)|socket timed out|timed out on send|"
    r"zero bytes were transmitted|transport endpoint|unexpected message received|munge|"
    r"authentication|no route to host|in standby",
    re.IGNORECASE,
)
_FINISHED = re.compile(r"already complet|invalid job id", re.IGNORECASE)
# These variables change what the programs print, or belong to an allocation around this process.
_SETTINGS = re.compile(
    r"(?:SQUEUE|SINFO|SACCT|SCANCEL|SCONTROL|SBATCH)_|SLURM_(?!CONF$)|GPUYARD_STEPS$"
)


@dataclass(frozen=True)
class SlurmConfig:
    """The controller's settings that matter here."""

    cluster: str
    next_job_id: int
    min_job_age_seconds: float
    """The controller forgets a finished job after this time."""
    supports_gpus_per_node: bool
    """True if it accepts --gpus-per-node; otherwise --gres."""
    has_topology: bool
    """True if it knows which nodes are connected to which switch."""


UNKNOWN_CONFIG = SlurmConfig("", 0, 0.0, supports_gpus_per_node=True, has_topology=False)
"""The settings of most clusters, for a dry run without Slurm."""


def find_missing_program(*programs: str) -> str | None:
    return next((program for program in programs if shutil.which(program) is None), None)


def require_programs(*programs: str) -> None:
    if (missing := find_missing_program(*programs)) is not None:
        raise MissingRequirement(
            f"{missing} is not on the PATH; install Slurm's client commands (Debian: slurm-client)"
        )


def run(*words: str) -> str:
    """Run a Slurm program and return its output."""
    environment = {**job_environment(), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    return _run(words, environment, TIMEOUT_SECONDS)


def query(
    program: Literal["squeue", "sinfo", "sacct"], columns: Sequence[str], *options: str
) -> list[dict[str, str]]:
    """List these columns as one dictionary per row.

    The last column may contain any text. A further line of that text is no row, as it has too few columns.
    """
    if program == "sacct":
        shape = ["--parsable2", f"--format={','.join(columns)}"]
    else:
        shape = [f"--Format={','.join(f'{column}:|' for column in columns)}"]
    output = run(program, "--noheader", *options, *shape)
    rows = [line.removesuffix("|").split("|", len(columns) - 1) for line in output.splitlines()]
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def read_config() -> SlurmConfig:
    lines = (line.partition("=") for line in run("scontrol", "show", "config").split("\n"))
    settings = {name.strip(): value.strip() for name, equals, value in lines if equals}
    select_type = settings.get("SelectType", "")
    try:
        return SlurmConfig(
            cluster=settings["ClusterName"],
            next_job_id=int(settings["NEXT_JOB_ID"]),
            min_job_age_seconds=float(settings["MinJobAge"].split()[0]),
            supports_gpus_per_node=select_type != "select/linear" and "cons_res" not in select_type,
            has_topology="tree" in settings.get("TopologyPlugin", ""),
        )
    except (KeyError, ValueError, IndexError) as error:
        raise GpuyardError(
            f"`scontrol show config` lacks a setting or has an invalid one: {error}"
        ) from error


def submit(
    script: str, environment: Mapping[str, str], *options: str, arguments: Sequence[str] = ()
) -> int:
    """Submit a batch script with exactly this environment, and return the job's number.

    The options override those in the script.
    """
    words = ("sbatch", "--parsable", *options, script, *arguments)
    output = _run(words, environment, SUBMIT_TIMEOUT_SECONDS).strip()
    number = output.rpartition("\n")[2].partition(";")[0]
    if not number.isdigit():
        raise GpuyardError(f"sbatch did not print a job number: {make_printable(output)[:200]!r}")
    return int(number)


def cancel(job: str) -> None:
    """Cancel a job, unless it has just finished."""
    try:
        run("scancel", job)
    except GpuyardError as error:
        if not _FINISHED.search(str(error)):
            raise


def job_environment() -> dict[str, str]:
    """Return this process's environment without the settings of Slurm's programs and of an enclosing allocation."""
    return {name: value for name, value in os.environ.items() if not _SETTINGS.match(name)}


def format_duration(seconds: float) -> str:
    """Format a duration the way Slurm does: 90061 → "1-01:01:01"."""
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minute:02}:{second:02}"


def _run(words: Sequence[str], environment: Mapping[str, str], timeout_seconds: float) -> str:
    program = words[0]
    try:
        process = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        raise _no_answer(f"{program} timed out after {timeout_seconds:.0f} s") from None
    except OSError as error:
        require_programs(program)
        raise GpuyardError(f"{program} cannot be started: {error.strerror}") from error
    if process.returncode == 0:
        return process.stdout.decode(errors="replace")
    stderr = make_printable(process.stderr.decode(errors="replace").strip())
    lines = [re.sub(rf"^{program}: (?:error: |fatal: )?", "", line) for line in stderr.splitlines()]
    message = "; ".join(lines)[-500:]
    if "configuration source" in message:
        raise GpuyardError("Slurm is not set up here: slurm.conf not found")
    if _UNREACHABLE.search(message):
        raise _no_answer(lines[-1])
    raise GpuyardError(f"Slurm refused {program}: {message or process.returncode}")


def _no_answer(reason: str) -> NoResponse:
    return NoResponse(
        f"Slurm does not answer ({reason}); check that its controller is up: scontrol ping"
    )
