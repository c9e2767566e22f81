"""The GPUs of other machines in the form of `gpuyard who`: a Slurm cluster's nodes, and a deployment's over ssh."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.share.clock import Clock, iso_timestamp

_MAX_THREADS = 16
_FIELDS = "index,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw"
_SEPARATOR = "--"
# nvidia-smi names the processes of a GPU by its UUID, and ps their users
QUERY = (
    f"nvidia-smi --query-gpu={_FIELDS},uuid --format=csv,noheader,nounits 2>&1; echo {_SEPARATOR}; "
    "nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader | "
    'while IFS=\', \' read -r gpu pid; do echo "$gpu $(ps -o user= -p "$pid")"; done'
)
"""The command that reads the GPUs of a machine without gpuyard."""
_MIB = 2**20


def read_slurm_nodes() -> dict[str, dict[str, Any]]:
    """Return a document like that of `gpuyard who` for each Slurm node with GPUs; the first has the queue."""
    from gpuyard.slurm.gpu_jobs import list_gpu_jobs
    from gpuyard.slurm.nodes import expand_hostnames, list_gpu_nodes

    jobs, clock = list_gpu_jobs(), Clock()
    places = {job.job_id: expand_hostnames(job.nodes) if job.nodes else () for job in jobs}
    machines: dict[str, dict[str, Any]] = {}
    for node in list_gpu_nodes():
        held = [
            (job, job.indices_on(places[job.job_id].index(node.name)))
            for job in jobs
            if not job.waits and node.name in places[job.job_id]
        ]
        gpus = [
            _describe_gpu(
                index,
                node.gpu_type or "GPU",
                drained=not node.accepts_jobs,
                leases=[_describe_job(job, clock) for job, indices in held if index in indices],
            )
            for index in range(node.gpus)
        ]
        machines[node.name] = _describe_machine(gpus, "slurm")
    waiting: list[dict[str, Any]] = [
        {
            "position": position,
            "id": str(job.job_id),
            "user": job.user_name,
            "count": job.gpu_count,
            "gpus": [],
            "share": 1.0,
            "since": iso_timestamp(job.submit_time),
            "elapsed_seconds": max(0.0, clock.wall() - (job.submit_time or clock.wall())),
            "command": job.name,
            "expected": iso_timestamp(job.start_time or None),
            "reason": job.state_reason or None,
        }
        for position, job in enumerate((job for job in jobs if job.waits), 1)
    ]
    if machines:
        next(iter(machines.values()))["queue"] = waiting
    return machines


def _describe_job(job: Any, clock: Clock) -> dict[str, Any]:
    return {
        "id": str(job.job_id),
        "user": job.user_name,
        "since": iso_timestamp(job.start_time),
        "until": iso_timestamp(job.end_time) if job.time_limit is not None else None,
        "elapsed_seconds": max(0.0, clock.wall() - (job.start_time or clock.wall())),
        "command": job.name,
        "share": 1.0,
        "project": job.comment or None,
        "isolated": False,
        "idle_since": None,
    }


def read_deployment_nodes(file: Path) -> dict[str, dict[str, Any]]:
    """Return a document like that of `gpuyard who` for each machine of a deployment, read over ssh."""
    from gpuyard.deploy.access.remote import require_hosts, run_remote
    from gpuyard.deploy.deployment import load_deployment

    loaded = load_deployment(file)
    hosts = require_hosts(loaded, file)

    def read(host: Any) -> dict[str, Any]:
        try:
            return parse_nvidia_smi(run_remote(loaded, host, QUERY))
        except GpuyardError as error:  # the others are still worth showing
            return {**_describe_machine([], "audit"), "conflict": str(error)}

    with ThreadPoolExecutor(_MAX_THREADS) as threads:
        return dict(zip((host.name for host in hosts), threads.map(read, hosts), strict=True))


def parse_nvidia_smi(output: str) -> dict[str, Any]:
    """Parse the output of `QUERY`; a value that the driver does not know is None."""
    listed, _, owners = output.partition(f"{_SEPARATOR}\n")
    users: dict[str, list[str]] = {}
    for line in owners.splitlines():
        uuid, _, user = line.partition(" ")
        if user.strip() and user.strip() not in users.setdefault(uuid, []):
            users[uuid].append(user.strip())
    gpus = []
    for line in listed.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 8 or not cells[0].isdigit():
            continue
        total, used, share, degrees, watts = map(_parse_number, cells[2:7])
        gpus.append(
            _describe_gpu(
                int(cells[0]),
                cells[1],
                memory_bytes=None if total is None else int(total * _MIB),
                memory_used_bytes=None if used is None else int(used * _MIB),
                utilization=None if share is None else share / 100,
                temperature_c=degrees,
                power_watts=watts,
                leases=[_describe_user(user) for user in users.get(cells[7], ())],
            )
        )
    if not gpus:
        reason = next((line.strip() for line in reversed(listed.splitlines()) if line.strip()), "")
        return {
            **_describe_machine([], "audit"),
            "conflict": f"no GPU found: {reason or 'none listed'}",
        }
    return _describe_machine(gpus, "audit")


def _describe_user(user: str) -> dict[str, Any]:
    """Describe the processes of a user as a lease without a number."""
    keys = ("since", "until", "command", "project", "idle_since")
    return {"id": f"processes of {user}", "user": user, "share": 1.0, **dict.fromkeys(keys)}


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A]
        return None


def _describe_gpu(
    index: int,
    name: str,
    *,
    leases: Sequence[Mapping[str, Any]],
    drained: bool = False,
    **readings: Any,
) -> dict[str, Any]:
    unread = ("memory_bytes", "memory_used_bytes", "utilization", "temperature_c", "power_watts", "memory_errors")  # fmt: skip
    return {
        "index": index,
        "name": name,
        **dict.fromkeys(unread),
        **readings,
        "processes": [],
        "drained": drained,
        "leases": list(leases),
    }


def _describe_machine(gpus: list[dict[str, Any]], guard: str) -> dict[str, Any]:
    return {"gpus": gpus, "queue": [], "reservations": [], "violations": [], "guard": guard}
