"""A share with test GPUs that several users hold, as the page tests show it. The leases live as long as this process."""

import json
import sqlite3
from pathlib import Path

from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller, this_process
from gpuyard.share.gpus import FAKE_READINGS
from gpuyard.share.models import LeaseRequest, ReservationRequest
from gpuyard.share.setup import set_up
from gpuyard.share.store import DATABASE

EVIL = "<script>document.title='broken'</script><img src=x onerror=alert(1)>"
LONG = "n" * 200
_GB = 10**9
_OTHER_UID = 54_321


def seed_share(
    directory: Path, gpus: int = 8, *, names: tuple[str, ...] = ("alice", "bob", "carol")
) -> None:
    """Create a share in which the first user trains, the second is idle, the third waits, and this user holds one GPU."""
    set_up(directory, fake_gpus=gpus, grace_seconds=0.5)
    config = directory / "share.json"
    document = json.loads(config.read_text())
    for gpu in document["gpus"]:
        gpu |= {
            "name": "NVIDIA H100 80GB HBM3",
            "memory_bytes": 80 * _GB,
            "catalog": "h100-sxm5-80gb",
        }
    config.write_text(json.dumps(document))
    if gpus == 0:
        return
    half, quarter = gpus // 2, max(1, gpus // 4)
    _lease(
        directory, names[0], half, "python train.py --config large.yaml", project="vision", hours=9
    )
    _lease(directory, names[1], quarter, "jupyter lab", hours=3)
    _lease(directory, "", 1, "python mine.py")
    _lease(directory, names[2], gpus, "python everything.py", hours=1)
    broker = Broker(directory)
    now = broker.store.clock.wall()
    broker.reserve(ReservationRequest(1, now + 86400, now + 90000))
    boot = broker.store.clock.boot()
    broker.close()
    with sqlite3.connect(directory / DATABASE) as connection:
        connection.execute(
            "UPDATE leases SET idle_since_boot = ? WHERE user = ?", (boot - 7200, names[1])
        )
    write_readings(directory, gpus, busy=half, idle=quarter)


def write_readings(directory: Path, gpus: int, *, busy: int, idle: int) -> None:
    """Write readings: the first GPUs compute, the next ones only hold memory, and one has memory errors."""
    readings = {}
    for index in range(gpus):
        at_work = index < busy or index == busy + idle
        readings[str(index)] = {
            "utilization": round(0.83 + 0.13 * (index % 7) / 7, 2) if at_work else 0.0,
            "memory_used_bytes": (61 + index % 9) * _GB
            if at_work
            else (4 if index < busy + idle else 0) * _GB,
            "temperature_c": 64 + index % 6 if at_work else 31,
            "power_watts": 610 + 9 * (index % 8) if at_work else 72,
            "memory_errors": 2 if index == 1 and gpus > 4 else 0,
        }
    (directory / FAKE_READINGS).write_text(json.dumps(readings))


def _lease(
    directory: Path,
    user: str,
    count: int,
    command: str,
    *,
    project: str = "",
    hours: float | None = None,
) -> None:
    """Ask for GPUs in the name of a user without an account; this process keeps the lock."""
    here = this_process()
    caller = here if not user else Caller(_OTHER_UID, _OTHER_UID, here.pid, here.process_start)
    broker = Broker(directory, caller)
    seconds = None if hours is None else 3600 * hours
    status, _ = broker.ask(LeaseRequest(count, command=command, project=project, seconds=seconds))
    broker.close()
    if user:
        with sqlite3.connect(directory / DATABASE) as connection:
            connection.execute("UPDATE leases SET user = ? WHERE id = ?", (user, status.lease.id))
