"""Lease and release round trips a second while 8 processes contend for 8 GPUs, each on the disk before it is
acknowledged; and how much later a command starts than without a lease."""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuyard.share.service.caller import this_process
from gpuyard.share.setup import set_up
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.lease import Request

PROCESSES, SECONDS, STARTS = 8, 5.0, 15
EXEC = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


def client(directory: Path, begin: float, count: "multiprocessing.Queue[int]") -> None:
    """Take any GPU and give it back, as the launcher does, without a command between."""
    broker, caller, request = Broker(directory), this_process(), Request()
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


def round_trips_per_second(directory: Path) -> float:
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
    return trips / SECONDS


def commits_per_second(directory: Path) -> float:
    """What the disk allows one writer: each commit of the store waits for one flush."""
    path = directory / "flush"
    with path.open("wb", buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(100):
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
    return 100 / (time.perf_counter() - begin)


def seconds_to_start(*before: str) -> float:
    """From here to the first thing that a command does: it says what time it is."""
    begin = time.time()
    done = subprocess.run((*before, "date", "+%s.%N"), check=True, capture_output=True, text=True)
    return float(done.stdout) - begin


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "share"
        os.environ["GPUYARD_SHARE_DIR"] = str(directory)
        set_up(directory, fake_gpus=8)
        keeper = Broker(directory)
        value = round_trips_per_second(directory)
        flushes = commits_per_second(directory)
        keeper.close()
        lease = (str(Path(sys.executable).parent / "gpuyard"), "lease", "1", "--")
        bare, leased = [], []
        for _ in range(STARTS):  # in turns, so that both see the same machine
            bare.append(seconds_to_start())
            leased.append(seconds_to_start(*lease))
        python = statistics.median(
            seconds_to_start(sys.executable, "-c", EXEC) for _ in range(STARTS)
        )
    added = statistics.median(leased) - statistics.median(bare)
    print(f"{value:.0f} round trips/s with {PROCESSES} processes, {2 * value:.0f} commits/s")
    print(f"this disk flushes {flushes:.0f} times/s for one writer: {2 * value / flushes:.1f} ×")
    print(
        f"a command starts {added * 1000:.0f} ms later on a lease (median of {STARTS}); "
        f"after a Python that does nothing it starts {python * 1000:.0f} ms after it was asked for"
    )
    print(
        json.dumps(
            {
                "name": "bench_lease",
                "value": value,
                "unit": "round trips/s",
                "added_start_up_ms": added * 1000,
            }
        )
    )


if __name__ == "__main__":
    main()
