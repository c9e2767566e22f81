"""Measure how long a user's request takes while others load the lease service. Needs root, because it acts as other users.

Three loads: many small leases whose processes must be searched for in /proc, many connections that ask in a loop, and many
reservations and requests in the queue. Hostile users go to their limits; there are enough of them to reach the totals.
"""

import contextlib
import ctypes
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.share.client import ServiceClient
from gpuyard.share.models import WHOLE, LeaseRequest, ReservationRequest
from gpuyard.share.processes import LEASE_VARIABLE
from gpuyard.share.service import restart_service
from gpuyard.share.setup import set_up

VICTIM, FIRST_HOSTILE = 60_001, 60_002
SMALL_LEASES, SLEEPERS, CONNECTIONS, RESERVATIONS, WAITERS = 490, 250, 120, 100, 150
TRIES, DAY = 9, 86_400.0


def act_as(uid: int, act: Callable[[], None]) -> int:
    """Run a function in a process of another user, and return its PID."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            act()
        os._exit(0)
    return pid


def request_share(client: ServiceClient, parts: int) -> tuple[str, int]:
    status, lock = client.ask(LeaseRequest(parts=parts, waits=False))
    return status.lease.id, lock


def keep_small_leases(directory: Path, total: int, parts: int, report: int) -> None:
    """Take leases, give their locks back, and keep them alive by the environment of one process."""
    client, leases = ServiceClient(directory), []
    with contextlib.suppress(GpuyardError):
        for _ in range(total):
            leases.append(request_share(client, parts))  # noqa: PERF401 - keep those before a refusal
    variables = [f"{LEASE_VARIABLE}={id_}".encode() for id_, _ in leases]
    keeper = os.fork()
    if keeper == 0:
        arguments = (ctypes.c_char_p * 3)(b"sleep", b"600", None)
        environment = (ctypes.c_char_p * (len(variables) + 1))(*variables, None)
        ctypes.CDLL(None).execve(b"/bin/sleep", arguments, environment)
    wait_until(lambda: Path(f"/proc/{keeper}/comm").read_text() == "sleep\n")
    for _ in range(SLEEPERS * total // SMALL_LEASES):
        if os.fork() == 0:
            os.execv("/bin/sleep", ("sleep", "600"))  # noqa: S606
    for _, lock in leases:
        os.close(lock)
    os.write(report, f"{len(leases)}\n".encode())
    signal.pause()


def ask_in_a_loop(directory: Path, connections: int, report: int) -> None:
    def ask() -> None:
        while True:
            with contextlib.suppress(GpuyardError):
                os.close(request_share(ServiceClient(directory), WHOLE // 2)[1])

    for _ in range(connections):
        threading.Thread(target=ask, daemon=True).start()
    os.write(report, f"{connections}\n".encode())
    signal.pause()


def fill_calendar_and_queue(directory: Path, reservations: int, waiters: int, report: int) -> None:
    client, locks = ServiceClient(directory), []
    reserved, now = 0, time.time()
    with contextlib.suppress(GpuyardError):
        for i in range(reservations):
            start = now + DAY + 7200 * i + os.getuid()
            client.reserve(ReservationRequest(1, start, start + 3600))
            reserved += 1
    with contextlib.suppress(GpuyardError):
        for i in range(waiters):
            lock = client.ask(LeaseRequest(count=1 + i % 8, seconds=600.0 + i))[1]
            locks.append(lock)
    os.write(report, f"{reserved} {len(locks)}\n".encode())
    signal.pause()


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


@contextlib.contextmanager
def hostile_users(load: Callable[[int], None], users: int) -> Iterator[list[str]]:
    """Run a load as several users; yield what each reached."""
    reading, writing = os.pipe()
    pids = [act_as(FIRST_HOSTILE + i, lambda: load(writing)) for i in range(users)]
    os.close(writing)
    with os.fdopen(reading) as reports:
        try:
            yield [reports.readline().strip() for _ in pids]
        finally:
            for pid in pids:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def measure_requests(directory: Path, *, count: int, waits: bool) -> list[float]:
    """Return the seconds of each request of the victim: a lease or a place in the queue."""
    reading, writing = os.pipe()

    def measure() -> None:
        client = ServiceClient(directory)
        for _ in range(TRIES):
            begin = time.perf_counter()
            try:
                status, lock = client.ask(LeaseRequest(count=count, waits=waits))
                outcome = f"{time.perf_counter() - begin}"
                os.close(lock)
                if not status.lease.held:
                    client.leave(status.lease.id)
            except GpuyardError as error:
                outcome = f"{time.perf_counter() - begin} {error}"
            os.write(writing, f"{outcome}\n".encode())

    pid = act_as(VICTIM, measure)
    os.close(writing)
    with os.fdopen(reading) as lines:
        results = lines.read().splitlines()
    os.waitpid(pid, 0)
    for result in results:
        if " " in result:
            print("refused:", result)
    return [float(result.split()[0]) for result in results]


def main() -> None:
    if os.geteuid() != 0:
        print("bench_contention needs root, because it acts as other users")
        return
    users = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    parts = int(sys.argv[2]) if len(sys.argv) > 2 else WHOLE // 100
    values = {}
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        directory = Path(parent) / "share"
        set_up(directory, fake_gpus=8, grace_seconds=0.5)
        restart_service(directory)

        def report(name: str, reached: list[str], *, count: int = 1, waits: bool = False) -> None:
            seconds = measure_requests(directory, count=count, waits=waits)
            values[name] = statistics.median(seconds) * 1000
            print(
                f"{name}: {values[name]:.0f} ms (longest {max(seconds) * 1000:.0f} ms of {TRIES}); "
                f"each of {len(reached)} users reached {', '.join(reached) or 'nothing'}",
                flush=True,
            )

        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        report("alone", [])
        with hostile_users(
            lambda pipe: keep_small_leases(directory, SMALL_LEASES // users, parts, pipe), users
        ) as reached:
            report("small leases", reached)
        report("after them", [])
        with hostile_users(
            lambda pipe: ask_in_a_loop(directory, CONNECTIONS // users, pipe), users
        ) as reached:
            report("requests in a loop", reached)
        with hostile_users(
            lambda pipe: fill_calendar_and_queue(
                directory, RESERVATIONS // users, WAITERS // users, pipe
            ),
            users,
        ) as reached:
            report("reservations and queue", reached, count=8, waits=True)
    print(json.dumps({"name": "bench_contention", "unit": "ms", **values}))


if __name__ == "__main__":
    main()
