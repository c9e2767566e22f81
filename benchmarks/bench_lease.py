"""Lease and release round trips a second while 8 processes contend for 8 GPUs, each on the disk before it is
acknowledged; and how much later a command starts than without a lease. Beside each, the CPU time that it takes, which other
work on the machine changes less."""

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

from gpuyard.share.service.caller import this_process
from gpuyard.share.setup import set_up
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.lease import LeaseRequest

PROCESSES, SECONDS, STARTS = 8, 5.0, 15
EXEC = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


def client(directory: Path, begin: float, count: "multiprocessing.Queue[int]") -> None:
    """Take any GPU and give it back, as the launcher does, without a command between."""
    broker, caller, request = Broker(directory), this_process(), LeaseRequest()
    while time.monotonic() < begin:
        time.sleep(0.001)
    trips = 0
    while time.monotonic() < begin + SECONDS:
        turn, lock = broker.ask(caller, request)
        assert turn.lease.held
        assert broker.finish(caller, turn.lease.id, childless=True)
        os.close(lock)
        trips += 1
    count.put(trips)
    broker.close()


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def round_trips_per_second(directory: Path) -> tuple[float, float]:
    """And CPU seconds of one, the start of the processes included."""
    before = cpu_seconds_of_children()
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
    return trips / SECONDS, (cpu_seconds_of_children() - before) / trips


def commits_per_second(directory: Path) -> float:
    """What the disk allows one writer: each commit of the store waits for one flush."""
    path = directory / "flush"
    with path.open("wb", buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(100):
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
    return 100 / (time.perf_counter() - begin)


def seconds_to_start(*before: str) -> tuple[float, float]:
    """From here to the first thing that a command does: it says what time it is. And CPU seconds of all."""
    cpu = cpu_seconds_of_children()
    begin = time.time()
    done = subprocess.run((*before, "date", "+%s.%N"), check=True, capture_output=True, text=True)
    return float(done.stdout) - begin, cpu_seconds_of_children() - cpu


def _medians(measured: list[tuple[float, float]]) -> tuple[float, float]:
    seconds, cpu = zip(*measured, strict=True)
    return statistics.median(seconds), statistics.median(cpu)


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "share"
        os.environ["GPUYARD_SHARE_DIR"] = str(directory)
        set_up(directory, fake_gpus=8)
        keeper = Broker(directory)
        value, cpu_each = round_trips_per_second(directory)
        flushes = commits_per_second(directory)
        keeper.close()
        lease = (str(Path(sys.executable).parent / "gpuyard"), "lease", "1", "--")
        bare, leased = [], []
        for _ in range(STARTS):  # in turns, so that both see the same machine
            bare.append(seconds_to_start())
            leased.append(seconds_to_start(*lease))
        python = [seconds_to_start(sys.executable, "-c", EXEC) for _ in range(STARTS)]
    bare_seconds, bare_cpu = _medians(bare)
    leased_seconds, leased_cpu = _medians(leased)
    python_seconds, python_cpu = _medians(python)
    added = leased_seconds - bare_seconds
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        f"{value:.0f} round trips/s with {PROCESSES} processes, {2 * value:.0f} commits/s, "
        f"{cpu_each * 1000:.2f} ms of CPU each"
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
                "cpu_ms_each": cpu_each * 1000,
                "added_start_up_ms": added * 1000,
                "added_cpu_ms": (leased_cpu - bare_cpu) * 1000,
                "load": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
