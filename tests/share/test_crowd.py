"""Hostile users who crowd the lease service: others get their turns, and the service survives."""

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import USERS
from tests.other_users import public_gpuyard
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server, service_pid

__all__ = ["accounts", "server"]
pytestmark = [needs_root, USERS]


def test_requests_in_a_loop_on_all_connections_leave_turns_to_others(server: Server) -> None:
    """The kernel reports the user, and each user has a queue of their own."""
    a, b, _ = server.users
    flood = (
        "import sys, threading; from pathlib import Path; from gpuyard.share import wire\n"
        "from gpuyard.errors import GpuyardError, NoResponse\n"
        "refused = threading.Event()\n"
        "def ask():\n"
        "    while True:\n"
        "        try: wire.call(Path(sys.argv[1]), 'state')\n"
        "        except NoResponse as error:\n"
        "            if 'limit per user' in str(error): refused.set()\n"
        "for _ in range(100): threading.Thread(target=ask, daemon=True).start()\n"
        "refused.wait(); print('refused', flush=True); threading.Event().wait()\n"
    )
    flooding = server.start_program(a, public_gpuyard().python, "-c", flood, str(server.directory))
    assert flooding.stdout is not None and flooding.stdout.readline() == "refused\n"
    for _ in range(3):
        server.run(b, "lease", "8", "--now", "--", "true")
    assert flooding.poll() is None


def test_clients_that_send_nothing_or_read_nothing_block_only_themselves(server: Server) -> None:
    a, b, _ = server.users
    hold = (
        "import socket, sys, time; from pathlib import Path; from gpuyard.share import wire\n"
        "sockets = [socket.socket(socket.AF_UNIX) for _ in range(80)]\n"
        "with wire.socket_path(Path(sys.argv[1])) as path:\n"
        "    for each in sockets: each.connect(path)\n"
        "for each in sockets[:40]: each.sendall(b'{\"do\": \"state\"}' * (each is sockets[0]) + b'{')\n"
        'for each in sockets[40:60]: each.sendall(b\'{"do": "history_page", "after": 0}\\n\')\n'
        "print('holding', flush=True); time.sleep(60)\n"
    )
    holding = server.start_program(a, public_gpuyard().python, "-c", hold, str(server.directory))
    assert holding.stdout is not None and holding.stdout.readline() == "holding\n"
    server.run(b, "lease", "8", "--now", "--", "true")
    assert holding.poll() is None


@pytest.fixture
def full_group() -> Iterator[Path]:
    """Yield a control group that lets no process start another thread."""
    for base in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        group = base / f"gpuyard-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / "pids.max").write_text("1")
        except OSError:
            continue
        yield group
        for pid in (group / "cgroup.procs").read_text().split():
            (base / "cgroup.procs").write_text(pid)
        group.rmdir()
        return
    pytest.skip("this machine has no control group that limits processes")


def test_the_service_decides_about_jobs_without_new_threads(
    server: Server, full_group: Path
) -> None:
    """Libraries start threads when they are first imported, and some end the process if they cannot."""
    a, b, _ = server.users
    pid = service_pid(server.directory)
    (full_group / "cgroup.procs").write_text(str(pid))
    announce = (
        "from gpuyard.share.client import open_client\n"
        "from gpuyard.share.schedule import JobAnnouncement\n"
        "job = JobAnnouncement('a', 'local://1', 'waiting', 1, 2, 2, (1.0, 2.0), 60.0, 0.0)\n"
        "print(open_client().schedule('1', [job]).starts)\n"
    )
    announcing = server.start_program(a, public_gpuyard().python, "-c", announce)
    assert announcing.communicate(timeout=60)[0] == "{'a': 2}\n"
    server.run(b, "lease", "6", "--wait", "20s", "--", "true")
    assert service_pid(server.directory) == pid


def test_the_service_survives_without_files(server: Server) -> None:
    """A limit on open files is reached by other programs of its user, too."""
    a, b, _ = server.users
    pid = service_pid(server.directory)
    files = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, files[1]))
    waiting = server.start(a, "lease", "8", "--", "true")
    time.sleep(0.5)  # it finds a service that cannot accept its connection
    resource.prlimit(pid, resource.RLIMIT_NOFILE, files)
    assert waiting.wait(60) == 0, waiting.communicate()
    server.run(b, "lease", "8", "--wait", "20s", "--", "true")
    assert service_pid(server.directory) == pid
