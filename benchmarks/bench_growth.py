"""Measure `who`, `queue`, and `status` without history and after 10,000 jobs, and a runner with 20 and 2,000 queued jobs.

CPU time is compared, because other work on the machine influences it less; the medians of alternating runs. On a quiet
machine, the goal is an answer within 250 ms.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.jobs.engines.local.filled_store import fill_store

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.share.broker import Broker
from gpuyard.share.setup import set_up

ROUNDS, IDLE_SECONDS, ENDED = 4, 8.0, 10_000
COMMANDS = ("who", "queue", "status local://1", "queue --last 10")
GPUYARD = (sys.executable, "-m", "gpuyard")


def measure(home: Path, command: str) -> tuple[float, float]:
    """Return the CPU and wall seconds of a command."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "GPUYARD_HOME": str(home)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled
    subprocess.run((*GPUYARD, *command.split()), env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def measure_commands(homes: dict[int, Path]) -> float:
    """Print the times of all commands, and return the largest ratio of long to no history."""
    results: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS + 1):  # the first run compiles modules and is not counted
        for command in COMMANDS:
            for ended, home in homes.items():
                results.setdefault((command, ended), []).append(measure(home, command))
    worst = 0.0
    for command in COMMANDS:
        few, many = (
            statistics.median(cpu for cpu, _ in results[command, ended][1:]) for ended in homes
        )
        wall = min(wall for ended in homes for _, wall in results[command, ended][1:])
        print(
            f"{command}: {1000 * few:.0f} ms of CPU time, {1000 * many:.0f} ms after {ENDED:,} jobs, "
            f"ratio {many / few:.2f}; fastest answer {1000 * wall:.0f} ms"
        )
        worst = max(worst, many / few)
    return worst


def measure_runner(home: Path) -> float:
    """Return the share of a core that a runner needs while its jobs wait."""
    measure(home, "queue")  # starts the runner
    os.environ["GPUYARD_HOME"] = str(home)
    lock = JobPaths.for_user().runner_lock
    while not lock.read_text().strip():
        time.sleep(0.1)
    pid = int(lock.read_text())
    time.sleep(20)  # it has decided for the first time, and stored for each job why it waits
    before = read_cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    used = read_cpu_seconds(pid) - before
    os.kill(pid, 9)
    return used / IDLE_SECONDS


def read_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ.update(GPUYARD_SHARE_DIR=str(root / "share"), KUBECONFIG="/nonexistent")
        set_up(root / "share", fake_gpus=8)
        broker = Broker(root / "share")
        broker.drain((), None)  # so that queued jobs wait
        homes = {}
        for label, ended, queued in (
            ("few", 1, 0),
            ("many", ENDED, 0),
            ("short", 0, 20),
            ("long", 0, 2000),
        ):
            os.environ["GPUYARD_HOME"] = str(root / label)
            fill_store(ended=ended, queued=queued)
            homes[label] = root / label
        worst = measure_commands({1: homes["few"], ENDED: homes["many"]})
        short, long = (measure_runner(homes[label]) for label in ("short", "long"))
        broker.close()
    print(f"idle runner: {short:.1%} of a core with 20 queued jobs, {long:.1%} with 2,000")
    unit = f"CPU time after {ENDED:,} jobs by that without history"
    print(json.dumps({"name": "growth", "value": round(worst, 2), "unit": unit}))


if __name__ == "__main__":
    main()
