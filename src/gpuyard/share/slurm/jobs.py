"""Leases as Slurm's jobs: the same request through srun, and the jobs there are as `who` shows leases."""

import contextlib
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.share.slurm.accounts import SHARDS
from gpuyard.share.store.clock import stamp
from gpuyard.share.store.config import ShareConfig
from gpuyard.share.store.lease import LONGEST_COMMAND, WHOLE, LeaseRequest, NoneFree
from gpuyard.share.turns.choice import parts_of
from gpuyard.share.watch import processes
from gpuyard.share.watch.gpus import Reading

_SECONDS = 20.0
# the job's number is known only where it runs
_RENAMED = (
    f"{processes.VARIABLE}=$SLURM_JOB_ID; export {processes.VARIABLE}; "
    'unset SLURM_EXIT_IMMEDIATE; exec "$@"'
)
# no text of a user's is in these, so none can stand for another job or another user
_COLUMNS = {
    "JobId": "%A", "User": "%u", "JobState": "%T", "TresPerNode": "%b", "SubmitTime": "%V", "StartTime": "%S",
    "EndTime": "%e", "TimeLimit": "%l",
}  # fmt: skip
_LIVING = "RUNNING,PENDING,SUSPENDED,COMPLETING,CONFIGURING"
_NAME = re.compile(r"\bJobName=(.*?) UserId=", re.DOTALL)
_COMMENT = re.compile(r" Comment=(.*?)(?: StdErr=|$)", re.DOTALL)
# what nodes and GPUs a job has stands before this, with nothing of a user's behind it
_AFTER_NODES = " MinCPUsNode="
_NODES = re.compile(r" {1,9}Nodes=\S+ CPU_IDs=\S+ Mem=\S+ GRES=(\S*)")
_INDICES = re.compile(r"\bgpu(?::[^:,(]+)?:\d+\(IDX:([\d,-]*)\)")
_SHARDS = re.compile(r"\bshard:([0-9]{1,9})\b")
_ASKED = re.compile(r"\bgpu(?::[^:,=]+)?[:=]([0-9]{1,6})\b")


def srun_command(
    request: LeaseRequest,
    command: Sequence[str],
    config: ShareConfig,
    wait_seconds: float | None = None,
    *,
    terminal: bool = False,
) -> list[str]:
    """What Slurm is asked for in place of a lease."""
    if request.gpus:
        raise UserMistake("Slurm chooses the GPUs itself; say how many, without --gpus")
    words = ["srun", "--nodes=1", "--ntasks=1", "--export=ALL", "--disable-status"]
    words.append(f"--gres={_gres(request, config)}")
    words.append(f"--job-name={os.path.basename(command[0])}")  # noqa: PTH119 - a word, maybe no path
    if request.seconds is not None:
        words.append(f"--time={math.ceil(request.seconds / 60)}")  # Slurm counts in minutes
    if not request.waits:
        words.append("--immediate")
    elif wait_seconds is not None:
        words.append(f"--immediate={max(1, math.ceil(wait_seconds))}")
    if request.project:
        words.append(f"--comment={request.project}")
    if terminal:
        words.append("--pty")
    return [*words, "--", "sh", "-c", _RENAMED, "sh", *command]


def run_as_job(
    request: LeaseRequest, command: Sequence[str], config: ShareConfig, wait_seconds: float | None
) -> NoReturn:
    """Become srun, whose exit status is the command's."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = srun_command(request, command, config, wait_seconds, terminal=terminal)
    environment = dict(os.environ)
    if "SLURM_JOB_ID" in environment:  # a lease inside of a job is another one
        kept = environment.get("SLURM_CONF")
        environment = {k: v for k, v in environment.items() if not k.startswith("SLURM_")}
        environment |= {"SLURM_CONF": kept} if kept else {}
    environment["SLURM_EXIT_IMMEDIATE"] = str(NoneFree.exit_status)
    _program("srun")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606
    except OSError as error:
        raise GpuyardError(f"srun can't be started: {error.strerror}") from error


def cancel(id_: str) -> None:
    """End a job; whether its user may is Slurm's to say."""
    if not id_.isdigit():
        raise UserMistake(f"there is no lease {id_!r} now; `gpuyard who` lists them")
    _ask("scancel", id_)


def gpu_jobs() -> list[dict[str, str]]:
    """Those that hold GPUs or wait for them, as Slurm lists them, oldest first."""
    columns = "|".join(_COLUMNS.values())
    listed = _ask("squeue", "--noheader", "--sort=i", f"--states={_LIVING}", f"--format={columns}")
    jobs = [
        dict(zip(_COLUMNS, map(str.strip, values), strict=True))
        for line in listed.splitlines()
        if len(values := line.split("|")) == len(_COLUMNS)
    ]
    return [job for job in jobs if re.search(r"gpu|shard", job["TresPerNode"])]


def _details(id_: str) -> str:
    """What Slurm says of one job, with its user's own words in it; nothing once it has ended."""
    try:
        return _ask("scontrol", "--details", "--oneliner", "show", "job", id_)
    except GpuyardError:
        return ""


def _nodes(job: dict[str, str]) -> str:
    """Of the details what Slurm says of nodes and GPUs: a user's words around it may look the same."""
    try:
        name = _ask("squeue", "--noheader", f"--jobs={job['JobId']}", "--format=%j")
    except GpuyardError:
        return ""
    _, named, after = job["Details"].partition(f" JobName={name.removesuffix(chr(10))} UserId=")
    before, found, _ = after.partition(_AFTER_NODES)
    if not named or not found:
        return ""
    held: list[str] = []
    end = 0
    for nodes in _NODES.finditer(before):
        if nodes.start() != end:
            held.clear()  # something is between: it was a user's word
        held.append(nodes[1])
        end = nodes.end()
    return ",".join(held) if end == len(before) else ""


def jobs_document(config: ShareConfig, readings: Mapping[int, Reading]) -> dict[str, Any]:
    """The same keys as of leases; what Slurm does not say is None."""
    jobs = [{**job, "Details": _details(job["JobId"])} for job in gpu_jobs()]
    running = [{**job, "Nodes": _nodes(job)} for job in jobs if job["JobState"] != "PENDING"]
    return {
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "memory_bytes": gpu.memory_bytes,
                **asdict(readings.get(gpu.index, Reading())),
                "drained": False,
                "leases": [_lease(job) for job in running if _holds(job, gpu.index)],
            }
            for gpu in config.gpus
        ],
        "queue": [
            {
                "position": position,
                "id": job["JobId"],
                "user": _user(job),
                "pid": None,
                "count": _count(job),
                "gpus": [],
                "share": _share(job),
                "since": _time(job.get("SubmitTime")),
                "command": _command(job),
            }
            for position, job in enumerate((j for j in jobs if j["JobState"] == "PENDING"), 1)
        ],
        "reservations": [],
        "violations": [],
        "guard": config.guard,
    }


def check_answers() -> None:
    """Slurm runs here and has GPUs to give; a sentence where not."""
    _program("srun")
    if "gpu" not in _ask("sinfo", "--noheader", "--format=%G"):
        raise GpuyardError(
            "Slurm answers, but has no GPUs to give; put gres.conf and slurm.conf of "
            "`gpuyard share export slurm` into /etc/slurm and restart its daemons"
        )


def _gres(request: LeaseRequest, config: ShareConfig) -> str:
    parts = parts_of(request, [config.gpu(i).memory_bytes for i in config.indices])
    if parts is None or parts > WHOLE:
        raise UserMistake("no GPU has that much memory; lease whole GPUs, without --memory")
    if parts == WHOLE:
        return f"gpu:{request.count}"
    if request.count > 1:
        raise UserMistake("Slurm gives a part of one GPU, not of several; ask for 1")
    return f"shard:{math.ceil(parts * SHARDS / WHOLE)}"


def _lease(job: dict[str, str]) -> dict[str, Any]:
    return {
        "id": job["JobId"],
        "user": _user(job),
        "pid": None,
        "since": _time(job.get("StartTime")),
        "until": _time(job.get("EndTime")) if job.get("TimeLimit") != "UNLIMITED" else None,
        "command": _command(job),
        "share": _share(job),
        "project": found[1].strip() if (found := _COMMENT.search(job["Details"])) else None,
    }


def _holds(job: dict[str, str], index: int) -> bool:
    """IDX:0-1,3 is 0, 1, 3."""
    for listed in _INDICES.findall(job["Nodes"]):
        for part in listed.split(","):
            first, _, last = part.partition("-")
            with contextlib.suppress(ValueError):
                if int(first) <= index <= int(last or first):
                    return True
    return False


def _count(job: dict[str, str]) -> int:
    asked = _ASKED.search(job.get("TresPerNode", ""))
    return int(asked[1]) if asked else 1


def _share(job: dict[str, str]) -> float:
    parts = _SHARDS.search(job.get("TresPerNode", ""))
    return int(parts[1]) / SHARDS if parts else 1.0


def _user(job: dict[str, str]) -> str:
    return job["User"]


def _command(job: dict[str, str]) -> str:
    found = _NAME.search(job["Details"])
    return found[1][:LONGEST_COMMAND] if found else ""


def _time(said: str | None) -> str | None:
    from datetime import datetime

    try:
        return stamp(datetime.fromisoformat(said or "").astimezone().timestamp())
    except ValueError:  # Unknown, None, N/A
        return None


def _program(name: str) -> None:
    if shutil.which(name) is None:
        raise MissingRequirement(
            f"leases go through Slurm here, and {name} is not on the PATH; install Slurm's client "
            "commands (Debian: slurm-client)"
        )


def _without_habits() -> dict[str, str]:
    """What a user likes to see of squeue, and how, is not what is asked for here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    return {**kept, "SLURM_TIME_FORMAT": "standard"}


def _ask(*words: str) -> str:
    _program(words[0])
    try:
        said = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
            env=_without_habits(),
        )
    except subprocess.TimeoutExpired:
        raise GpuyardError(
            f"Slurm's controller has not answered for {_SECONDS:.0f} s; see whether it is up: "
            "scontrol ping"
        ) from None
    if said.returncode != 0:
        why = said.stderr.strip().removeprefix(f"{words[0]}: error: ")
        raise GpuyardError(f"Slurm refused: {why or said.returncode} ({' '.join(words)})")
    return said.stdout
