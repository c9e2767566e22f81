"""The jobs of all users that use GPUs or wait for them.

`squeue --json` prints every job of the cluster; here, text that users wrote surrounds the fields that matter.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from gpuyard.errors import GpuyardError
from gpuyard.slurm.client import run
from gpuyard.slurm.jobs import STATES
from gpuyard.slurm.nodes import count_gpus

_NUMBER = re.compile(r"[0-9]{1,10}")
_INDICES = re.compile(r"\bgpu(?::[^:,(]+)?:\d+\(IDX:([\d,-]*)\)")
_SHARDS = re.compile(r"\bshard(?::[^:,(=]+)?[:=]([0-9]{1,9})\b")


def _unwrap_number(value: Any) -> Any:
    """Slurm 23.02 and later wrap numbers: {"set": true, "infinite": false, "number": 17}."""
    if not isinstance(value, dict):
        return value
    return value.get("number") if value.get("set") and not value.get("infinite") else None


_Number = Annotated[int | None, BeforeValidator(_unwrap_number)]


class GpuJob(BaseModel):
    """A job that uses GPUs or waits for them, as `squeue --json` describes it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    job_id: int
    user_name: str
    name: str = ""
    comment: str = ""
    nodes: str = ""
    """The nodes that it has, in Slurm's notation."""
    # Slurm 23.11 and later list the base state and flags.
    job_state: Annotated[
        str, BeforeValidator(lambda value: value[0] if isinstance(value, list) and value else value)
    ]
    tres_per_node: str = ""
    gres_detail: tuple[str, ...] = ()
    """The GPUs on each node: "gpu:t4:2(IDX:0-1)"."""
    state_reason: str = ""
    """Why it waits, in Slurm's words."""
    submit_time: _Number = None
    start_time: _Number = None
    end_time: _Number = None
    time_limit: _Number = None

    @property
    def waits(self) -> bool:
        return self.job_state == "PENDING"

    @property
    def gpu_count(self) -> int:
        return count_gpus(self.tres_per_node) or 1

    @property
    def shards(self) -> int | None:
        """The requested parts of a GPU; None if it requested whole GPUs."""
        match = _SHARDS.search(self.tres_per_node)
        return int(match[1]) if match else None

    def uses_gpu(self, index: int) -> bool:
        return any(low <= index <= high for low, high in self._index_ranges(self.gres_detail))

    def indices_on(self, position: int) -> frozenset[int]:
        """Return the GPUs that it uses on one of its nodes, by the node's position in `nodes`."""
        ranges = self._index_ranges(self.gres_detail[position : position + 1])
        return frozenset(index for low, high in ranges for index in range(low, high + 1))

    def _index_ranges(self, details: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Parse "IDX:0-1,3" to (0, 1) and (3, 3)."""
        for indices in _INDICES.findall(",".join(details)):
            for part in indices.split(","):
                first, _, last = part.partition("-")
                if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last or first):
                    yield int(first), int(last or first)


class _Queue(BaseModel):
    jobs: tuple[GpuJob, ...]


def list_gpu_jobs() -> list[GpuJob]:
    """List all users' jobs that use GPUs or wait for them, oldest first."""
    output = run("squeue", "--json")
    try:
        jobs = _Queue.model_validate_json(output).jobs
    except ValidationError as error:
        raise GpuyardError(
            f"the output of `squeue --json` cannot be used: {error.errors()[0]['msg']}"
        ) from error
    using = (
        j for j in jobs if re.search(r"gpu|shard", ",".join((j.tres_per_node, *j.gres_detail)))
    )
    open_jobs = (job for job in using if STATES.get(job.job_state) in {"queued", "running"})
    return sorted(open_jobs, key=lambda job: job.job_id)
