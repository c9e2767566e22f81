"""Time `gpuyard serve` under load: 50 open Now pages and 200 requests per second for a minute.

    python benchmarks/bench_web.py              # 60 s
    python benchmarks/bench_web.py --seconds 10

The server is a process of its own, with a share of 8 test GPUs. Requests are sent at fixed times, so that a slow answer does
not slow down the next request; the time of an answer counts from the moment at which its request was due.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.web.seed import seed_share

WATCHERS, RATE, CONNECTIONS = 50, 200, 40
PATHS = (
    *["/now.json"] * 8,
    *["/"] * 8,
    *["/metrics"] * 3,
    *["/static/web.css"] * 5,
    "/scale.json?machines=4",
)


async def watch(port: int, events: list[int], number: int) -> None:
    """Open the stream of the Now view, and count its events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    writer.write(f"GET /events/now HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    while line := await reader.readline():
        events[number] += line.startswith(b"event: now")


async def send(
    port: int, due: "asyncio.Queue[tuple[float, str]]", times: dict[str, list[float]]
) -> None:
    """Send the requests that are due over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    while True:
        at, path = await due.get()
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b" ", 2)[1]
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        assert status == b"200", (path, head[:200])
        times[path].append(time.perf_counter() - at)


async def load(port: int, seconds: float, server: psutil.Process) -> None:
    """Run the load and print what was measured."""
    events, times = [0] * WATCHERS, defaultdict[str, list[float]](list)
    due: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
    tasks = [asyncio.create_task(watch(port, events, n)) for n in range(WATCHERS)]
    tasks += [asyncio.create_task(send(port, due, times)) for _ in range(CONNECTIONS)]
    for path in 5 * list(dict.fromkeys(PATHS)):  # imports modules and fills caches
        due.put_nowait((time.perf_counter(), path))
    await asyncio.sleep(5)
    times.clear()
    memory = [server.memory_info().rss]
    cpu = sum(server.cpu_times()[:2])
    began = time.perf_counter()
    for number in range(round(seconds * RATE)):
        at = began + number / RATE
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        due.put_nowait((at, PATHS[number % len(PATHS)]))
        if number % (RATE * 5) == RATE * 5 - 1:
            memory.append(server.memory_info().rss)
    while sum(map(len, times.values())) < round(seconds * RATE):
        await asyncio.sleep(0.05)
        failed = [task.exception() for task in tasks if task.done()]
        assert not failed, failed
    elapsed = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    report(times, events, memory, elapsed, (sum(server.cpu_times()[:2]) - cpu) / elapsed)


def report(
    times: dict[str, list[float]],
    events: list[int],
    memory: list[int],
    elapsed: float,
    cores: float,
) -> None:
    whole = sorted(value for values in times.values() for value in values)
    print(f"{len(whole)} requests in {elapsed:.1f} s, {len(whole) / elapsed:.0f} per second")
    print(f"{'path':<26} {'requests':>8} {'median':>9} {'p95':>9} {'p99':>9}")
    for path, values in [*times.items(), ("all", whole)]:
        percentiles = statistics.quantiles(values, n=100)
        cells = (f"{1000 * percentiles[index]:6.1f} ms" for index in (49, 94, 98))
        print(f"{path:<26} {len(values):>8} {' '.join(cells)}")
    print(f"{WATCHERS} watchers: {min(events)} to {max(events)} events each")
    print(
        f"memory: {memory[0] / 1e6:.0f} MB at the start, {memory[-1] / 1e6:.0f} MB at the end, at most {max(memory) / 1e6:.0f} MB"
    )
    print(f"the server used {cores:.2f} cores")
    p95 = statistics.quantiles(whole, n=100)[94]
    print(f"p95 {1000 * p95:.1f} ms (goal: under 100 ms); memory × {memory[-1] / memory[0]:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"GPUYARD_HOME": directory, "GPUYARD_SHARE_DIR": f"{directory}/share"}
        seed_share(Path(directory) / "share")
        with subprocess.Popen(
            (sys.executable, "-m", "gpuyard", "serve", "--port", "0"),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
            try:
                asyncio.run(load(port, seconds, psutil.Process(process.pid)))
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
