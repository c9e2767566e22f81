"""A process that connects and ends: whoever gets its PID is not moved into the control group of its lease."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from gpuyard.share import wire
from tests.conftest import USERS
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server

__all__ = ["accounts", "server"]
pytestmark = [needs_root, USERS]
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def start_with_pid(pid: int) -> "subprocess.Popen[bytes] | None":
    """Start a process with this PID; other processes may take it first."""
    LAST_PID.write_text(str(pid - 1))
    process = subprocess.Popen(("sleep", "60"))
    if process.pid == pid:
        return process
    process.kill()
    process.wait()
    return None


def connect_and_end(server: Server, connection: socket.socket, uid: int) -> int:
    """Connect in a process of a user that ends at once, and return its PID; this process keeps the connection."""
    child = os.fork()
    if child == 0:
        with wire.socket_path(server.directory) as path:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            connection.connect(path)
        os._exit(0)
    time.sleep(0.2)  # the service accepts it while the process, now a zombie, keeps its PID
    os.waitpid(child, 0)
    return child


def test_a_reused_pid_is_not_moved_into_a_lease(server: Server) -> None:
    setup = server.start("root", "share", "setup", "--fake-gpus", "4", "--isolate")
    if "cannot be closed to other leases here" in setup.communicate(timeout=60)[1]:
        pytest.skip("no control groups here that close devices")
    if not LAST_PID.exists():
        pytest.skip("this kernel cannot choose the next PID")
    for _ in range(50):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            victim = start_with_pid(connect_and_end(server, connection, 60_001))
            if victim is None:
                continue
            try:
                connection.sendall(b'{"do": "ask", "request": {}}\n')
                answer = json.loads(connection.recv(65_536))
                assert "gpuyard-lease" not in Path(f"/proc/{victim.pid}/cgroup").read_text()
                assert "has ended" in answer["error"]
            finally:
                victim.kill()
                victim.wait()
        server.run(server.users[1], "lease", "4", "--now", "--", "true")
        return
    pytest.skip("other processes took the PID 50 times")
