"""Measure lease round trips per second while 8 processes contend for 8 GPUs, and the start-up time that a lease adds.

A round trip is a lease and its release, both flushed to disk before they are acknowledged. The benchmark also reports CPU
time, which other work on the machine influences less.
"""

import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuyard.share.broker import Broker
from gpuyard.share.models import LeaseRequest
from gpuyard.share.setup import set_up

PROCESSES, SECONDS, STARTS = 8, 5.0, 15
EXEC = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


def client(directory: Path, begin: float, count: "multiprocessing.Queue[int]") -> None:
    """Lease and release any GPU in a loop, as the launcher does, without running a command."""
    broker, request = Broker(directory), LeaseRequest()
    while time.monotonic() < begin:
        time.sleep(0.001)
    trips = 0
    while time.monotonic() < begin + SECONDS:
        status, lock = broker.ask(request)
        assert status.lease.held
        assert broker.finish(status.lease.id, childless=True)
        os.close(lock)
        trips += 1
    count.put(trips)
    broker.close()


def measure_child_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_round_trips(directory: Path) -> tuple[float, float]:
    """Return round trips per second, and the CPU seconds of each, including the start of the processes."""
    before = measure_child_cpu_seconds()
    count: multiprocessing.Queue[int] = multiprocessing.Queue()
    begin = time.monotonic() + 1
    clients = [
        multiprocessing.Process(target=client, args=(directory, begin, count))
        for _ in range(PROCESSES)
    ]
    for process in clients:
        process.start()
    trips = sum(count.get() for _ in clients)
    for process in clients:
        process.join()
    return trips / SECONDS, (measure_child_cpu_seconds() - before) / trips


def measure_flushes_per_second(directory: Path) -> float:
    """Measure the disk's flushes per second for one writer; each commit of the store waits for one."""
    path = directory / "flush"
    with path.open("wb", buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(100):
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
    return 100 / (time.perf_counter() - begin)


def measure_start(*prefix: str) -> tuple[float, float]:
    """Return the seconds until a command prints the time, and the CPU seconds of everything."""
    cpu = measure_child_cpu_seconds()
    begin = time.time()
    finished = subprocess.run(
        (*prefix, "date", "+%s.%N"), check=True, capture_output=True, text=True
    )
    return float(finished.stdout) - begin, measure_child_cpu_seconds() - cpu


def _compute_medians(measured: list[tuple[float, float]]) -> tuple[float, float]:
    seconds, cpu = zip(*measured, strict=True)
    return statistics.median(seconds), statistics.median(cpu)


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "share"
        os.environ["GPUYARD_SHARE_DIR"] = str(directory)
        set_up(directory, fake_gpus=8)
        keeper = Broker(directory)
        value, cpu_per_trip = measure_round_trips(directory)
        flushes = measure_flushes_per_second(directory)
        keeper.close()
        lease = (str(Path(sys.executable).parent / "gpuyard"), "lease", "1", "--")
        bare, leased = [], []
        for _ in range(STARTS):  # alternate, so that both see the same machine
            bare.append(measure_start())
            leased.append(measure_start(*lease))
        python = [measure_start(sys.executable, "-c", EXEC) for _ in range(STARTS)]
    bare_seconds, bare_cpu = _compute_medians(bare)
    leased_seconds, leased_cpu = _compute_medians(leased)
    python_seconds, python_cpu = _compute_medians(python)
    added = leased_seconds - bare_seconds
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        f"{value:.0f} round trips/s with {PROCESSES} processes, {2 * value:.0f} commits/s, "
        f"{cpu_per_trip * 1000:.2f} ms of CPU each"
    )
    print(f"this disk flushes {flushes:.0f} times/s for one writer: {2 * value / flushes:.1f} ×")
    print(
        f"a command starts {added * 1000:.0f} ms later on a lease (median of {STARTS}); "
        f"after a Python that does nothing, {(python_seconds - bare_seconds) * 1000:.0f} ms later"
    )
    print(
        f"CPU: {(leased_cpu - bare_cpu) * 1000:.0f} ms more on a lease, of which a Python that does nothing is "
        f"{(python_cpu - bare_cpu) * 1000:.0f} ms"
    )
    print(
        json.dumps(
            {
                "name": "bench_lease",
                "value": value,
                "unit": "round trips/s",
                "cpu_ms_each": cpu_per_trip * 1000,
                "added_start_up_ms": added * 1000,
                "added_cpu_ms": (leased_cpu - bare_cpu) * 1000,
                "load": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
