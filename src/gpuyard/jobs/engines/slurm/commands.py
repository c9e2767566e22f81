"""Slurm's own programs, each asked with a time-out; what does not answer is told apart from what refuses."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, MissingRequirement, NoAnswer, UserMistake, quoted
from gpuyard.printable import printable
from gpuyard.specs.job import MOST_GPUS

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo")
_ASK_SECONDS = 20.0
_SUBMIT_SECONDS = 60.0
_SILENT = re.compile(
    r"unable to contact|connection (?:refused|reset|timed out)|socket timed out|timed out on send|"
    r"zero bytes were transmitted|transport endpoint|unexpected message received|munge|"
    r"authentication|no route to host|in standby",
    re.IGNORECASE,
)
_ENDED = re.compile(r"already complet|invalid job id", re.IGNORECASE)
# what a user has set for looking at queues changes what these programs print
_SETTINGS = re.compile(
    r"(?:SQUEUE|SINFO|SACCT|SCANCEL|SCONTROL|SBATCH)_|SLURM_(?!CONF$)|GPUYARD_STEPS$"
)
_GPUS = re.compile(r"\bgpu(?::[^:,(]+)?:([0-9]{1,6})\b")
_KINDS = re.compile(r"\bgpu:([^:,(]+):\d+")
_NODE_COLUMNS = ("NodeList", "Partition", "Gres", "GresUsed", "StateCompact")
_TAKES_JOBS = re.compile(r"(?:idle|mix|alloc|comp|plnd)[^*]*$")  # a star: it does not answer


class NotSetUp(GpuyardError):
    """Slurm's programs are here, and no configuration says where its controller is."""


@dataclass(frozen=True)
class SlurmConfig:
    """What the controller says of itself."""

    cluster: str
    next_number: int
    forgets_after_seconds: float
    """A job that has ended is known for so long."""
    gpus_per_node: bool
    """Whether it takes --gpus-per-node; else --gres."""
    switches: bool
    """Whether it knows which nodes are at which switch."""


NOT_ASKED = SlurmConfig("", 0, 0.0, gpus_per_node=True, switches=False)
"""Where there is no Slurm, for a dry run: what most clusters have."""


@dataclass(frozen=True)
class PartitionNodes:
    """Those that a job could get: GPUs of each; None where Slurm was not asked."""

    gpus: tuple[int, ...] | None = None
    used: tuple[int, ...] = ()
    """GPUs of each that jobs have now; all, where it takes no job."""
    kinds: frozenset[str] = frozenset()
    """As Slurm calls its GPUs."""

    def with_gpus(self, least: int) -> int:
        """How many have so many."""
        return MOST_GPUS if self.gpus is None else sum(gpus >= least for gpus in self.gpus)


def missing_program() -> str | None:
    return next((name for name in PROGRAMS if shutil.which(name) is None), None)


def ask(*words: str) -> str:
    """What it prints. Raises NoAnswer where it says nothing, GpuyardError where it refuses."""
    return _run(words, client_environment(), _ASK_SECONDS)


def slurm_config() -> SlurmConfig:
    lines = (line.partition("=") for line in ask("scontrol", "show", "config").split("\n"))
    said = {name.strip(): value.strip() for name, equals, value in lines if equals}
    try:
        return SlurmConfig(
            cluster=said["ClusterName"],
            next_number=int(said["NEXT_JOB_ID"]),
            forgets_after_seconds=float(said["MinJobAge"].split()[0]),
            gpus_per_node=said.get("SelectType", "") != "select/linear"
            and "cons_res" not in said.get("SelectType", ""),
            switches="tree" in said.get("TopologyPlugin", ""),
        )
    except (KeyError, ValueError, IndexError) as error:
        raise GpuyardError(
            f"`scontrol show config` does not say what is needed of it: {error}"
        ) from error


def nodes(partition: str | None) -> PartitionNodes:
    """Those of this partition, or of the default one."""
    chosen = (f"--partition={partition}",) if partition else ()
    columns = ",".join(f"{name}:|" for name in _NODE_COLUMNS)
    listed = ask("sinfo", "--noheader", "--Node", f"--Format={columns}", *chosen)
    rows = [line.split("|") for line in listed.splitlines() if line.count("|") >= 4]
    if partition and not rows:
        raise UserMistake(f"Slurm has no partition {quoted(partition)}; `sinfo` lists them")
    rows = [row for row in rows if partition or row[1].endswith("*")] or rows
    by_name = {row[0]: row for row in rows}
    gpus = tuple(_gpus(row[2]) for row in by_name.values())
    used = tuple(
        _gpus(row[3]) if _TAKES_JOBS.match(row[4]) else there
        for row, there in zip(by_name.values(), gpus, strict=True)
    )
    kinds = frozenset(kind for row in rows for kind in _KINDS.findall(row[2]))
    return PartitionNodes(gpus, used, kinds)


def _gpus(gres: str) -> int:
    return sum(map(int, _GPUS.findall(gres)))


def sbatch(
    script: str,
    environment: Mapping[str, str],
    *options: str,
    arguments: tuple[str, ...] = (),
) -> int:
    """The number that Slurm gives. The job gets exactly this environment; options count more than the script's own."""
    words = ("sbatch", "--parsable", *options, script, *arguments)
    said = _run(words, environment, _SUBMIT_SECONDS)
    number = said.strip().rpartition("\n")[2].partition(";")[0]
    if not number.isdigit():
        raise GpuyardError(f"sbatch did not print a number: {printable(said.strip())[:200]!r}")
    return int(number)


def scancel(job: str) -> None:
    """End it, unless it has just ended by itself."""
    try:
        ask("scancel", job)
    except GpuyardError as error:
        if not _ENDED.search(str(error)):
            raise


def client_environment() -> dict[str, str]:
    return {**_without_settings(), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def job_environment() -> dict[str, str]:
    """This process's, for a job: without what belongs to an allocation that it may be in."""
    return _without_settings()


def _without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not _SETTINGS.match(name)}


def _run(words: tuple[str, ...], environment: Mapping[str, str], seconds: float) -> str:
    try:
        said = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(
            f"Slurm's controller has not answered for {seconds:.0f} s; see whether it is up: "
            "scontrol ping"
        ) from None
    except FileNotFoundError:
        raise MissingRequirement(
            f"{words[0]} is not on the PATH; install Slurm's client commands (Debian: slurm-client)"
        ) from None
    except OSError as error:
        raise GpuyardError(f"{words[0]} can't be started: {error.strerror}") from error
    if said.returncode == 0:
        return said.stdout.decode(errors="replace")
    why = printable(said.stderr.decode(errors="replace").strip())
    lines = [re.sub(rf"^{words[0]}: (?:error: |fatal: )?", "", line) for line in why.splitlines()]
    why = "; ".join(lines)[-500:]
    if "configuration source" in why:
        raise NotSetUp("Slurm is not set up here: there is no slurm.conf")
    if _SILENT.search(why):
        raise NoAnswer(f"Slurm does not answer ({lines[-1]}); see whether it is up: scontrol ping")
    raise GpuyardError(f"Slurm refused {words[0]}: {why or said.returncode}")
