"""Several Unix users and one service: each can use it, nobody can touch what is another's."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuyard.share.service import wire
from gpuyard.share.service.service import is_running
from tests.conftest import MACHINE
from tests.other_users import everybodys_gpuyard
from tests.share.conftest import holders, needs_root
from tests.share.test_isolation import LOOK, remove_groups

pytestmark = [needs_root, MACHINE]


@dataclass
class Server:
    """A share of root's with its service, and accounts that were made for the test."""

    directory: Path
    users: tuple[str, ...]
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def start(self, user: str, *arguments: str) -> "subprocess.Popen[str]":
        return self.start_program(user, everybodys_gpuyard().python, "-m", "gpuyard", *arguments)

    def start_program(self, user: str, *command: str) -> "subprocess.Popen[str]":
        environment = {
            "PATH": os.environ["PATH"],
            **everybodys_gpuyard().environment,
            "GPUYARD_SHARE_DIR": str(self.directory),
            "GPUYARD_HOME": "/nonexistent",
            "HOME": "/nonexistent",
        }
        process = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            user=user,
            group=user,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, user: str, *arguments: str, status: int = 0) -> tuple[str, str]:
        process = self.start(user, *arguments)
        said, complained = process.communicate(timeout=60)
        log = (self.directory / "service.log").read_text()
        assert process.returncode == status, (process.returncode, said, complained, log)
        return said, complained

    def holding(self, user: str, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
        """A lease whose command runs, and its id."""
        leased = self.start(
            user, "lease", *arguments, "--", "sh", "-c", "echo $GPUYARD_LEASE; exec sleep 60"
        )
        assert leased.stdout is not None
        return leased, leased.stdout.readline().strip()

    def who(self, user: str = "root") -> dict[str, Any]:
        return dict(json.loads(self.run(user, "who", "--json")[0]))


@pytest.fixture
def accounts() -> Iterator[tuple[str, ...]]:
    """Two users, and an admin whose group is called as the account."""
    names = tuple(f"gy{os.getpid()}{letter}" for letter in "abc")
    for name in names:
        subprocess.run(("useradd", "--no-create-home", "--user-group", name), check=True)
    yield names
    for name in names:
        subprocess.run(("userdel", "--force", name), check=False, capture_output=True)


@pytest.fixture
def server(accounts: tuple[str, ...]) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="gpuyard-share-"))
    directory.chmod(0o755)
    made = Server(directory / "share", accounts)
    made.run("root", "share", "setup", "--fake-gpus", "8", "--admin-group", accounts[2])
    yield made
    for process in made.started:
        if process.poll() is None:  # else its number may be another's by now
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    remove_groups(made.directory)
    shutil.rmtree(directory)  # the service ends when its socket is gone


def test_a_users_processes_can_open_only_their_gpus_and_cant_leave(server: Server) -> None:
    setup = server.start("root", "share", "setup", "--fake-gpus", "4", "--isolate")
    if "can't be closed to others here" in setup.communicate(timeout=60)[1]:
        pytest.skip("no control groups here that close devices")
    leave = (
        "for group in /sys/fs/cgroup /sys/fs/cgroup/*; do echo $$ > $group/cgroup.procs; done "
        '2>/dev/null; exec "$@"'
    )
    paths = [str(server.directory / "devices" / f"gpu{i}") for i in range(4)]
    look = ("sh", "-c", leave, "sh", everybodys_gpuyard().python, "-c", LOOK, *paths)
    a, b, _ = server.users
    server.holding(b, "--gpus", "0")
    assert server.run(a, "lease", "2", "--", *look)[0].split() == [
        "closed",
        "open",
        "open",
        "closed",
    ]
    (lease,) = server.who(a)["gpus"][0]["leases"]
    assert (lease["user"], lease["isolated"]) == (b, True)


def test_users_lease_through_the_service_under_their_own_names(server: Server) -> None:
    a, b, _ = server.users
    _, first = server.holding(a, "3")
    _, second = server.holding(b, "2", "--for", "1h")
    for user in ("root", a, b):
        said = server.who(user)
        assert holders(said) == {0: [first], 1: [first], 2: [first], 3: [second], 4: [second]}
        assert [gpu["leases"][0]["user"] for gpu in said["gpus"][:5]] == [a, a, a, b, b]
    server.run(a, "lease", "4", "--now", "--", "true", status=75)
    assert (
        server.run(
            b, "lease", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 4", status=4
        )[0]
        == "5,6\n"
    )
    assert holders(server.who()).keys() == {0, 1, 2, 3, 4}


def test_only_the_owner_and_admins_can_release(server: Server) -> None:
    a, b, admin = server.users
    leased, id_ = server.holding(a, "1")
    said = server.run(b, "release", id_, status=1)[1]
    assert f"only {a} and members of the group {admin} can release it" in said
    assert leased.poll() is None
    server.run(admin, "release", id_)
    assert leased.wait(60) != 0
    _, id_ = server.holding(a, "1")
    server.run(a, "release", id_)
    assert holders(server.who()) == {}


def test_reservations_are_the_callers_own_and_admins_drain(server: Server) -> None:
    a, b, admin = server.users
    made = json.loads(server.run(a, "reserve", "8", "--from", "now", "--for", "1h", "--json")[0])
    assert made["user"] == a
    server.run(b, "lease", "1", "--now", "--for", "1min", "--", "true", status=75)
    server.run(a, "lease", "8", "--now", "--", "true")
    said = server.run(b, "reserve", "cancel", made["id"], status=1)[1]
    assert f"only {a} and members of the group {admin} can cancel it" in said
    assert json.loads(server.run(b, "reserve", "list", "--json")[0])["reservations"] == [made]
    server.run(admin, "reserve", "cancel", made["id"])
    server.run(b, "lease", "8", "--now", "--", "true")
    for refused in (("share", "drain"), ("share", "resume")):
        assert "only root and members" in server.run(b, *refused, status=1)[1]
    server.run(admin, "share", "drain")
    server.run("root", "lease", "1", "--now", "--", "true", status=75)
    server.run("root", "share", "resume")
    assert (
        "can set the policy" in server.run(b, "share", "policy", "--quota", f"{b}=1", status=1)[1]
    )
    server.run(admin, "share", "policy", "--quota", f"{b}=1")
    said = server.run(b, "lease", "2", "--now", "--", "true", status=2)[1]
    assert f"the group {b} has a quota of 1 GPU at once" in said
    server.run(a, "lease", "8", "--now", "--", "true")
    server.run(b, "lease", "1", "--now", "--", "true")


def test_nobody_else_can_write_the_store_or_hold_a_lock(server: Server) -> None:
    a, b, _ = server.users
    _, id_ = server.holding(a, "1")
    lock = server.directory / "locks" / f"{id_}.lock"
    attempts = (
        f"open({str(server.directory / 'leases.sqlite')!r})",
        f"open({str(server.directory / 'leases.sqlite-shm')!r})",
        f"open({str(server.directory / 'leases.sqlite')!r}, 'r+')",
        f"open({str(server.directory / 'share.json')!r}, 'r+')",
        f"open({str(server.directory / 'new')!r}, 'w')",
        f"open({str(lock)!r})",
        f"__import__('os').unlink({str(server.directory / 'lease.socket')!r})",
        f"import sqlite3; sqlite3.connect({str(server.directory / 'leases.sqlite')!r})"  # noqa: S608
        ".execute('DELETE FROM holds')",
    )
    for attempt in attempts:
        for user in (a, b):
            tried = server.start_program(user, everybodys_gpuyard().python, "-c", attempt)
            said = tried.communicate(timeout=30)[1]
            assert tried.returncode == 1
            assert "PermissionError" in said or "unable to open database" in said, (attempt, said)
    for command in (("share", "recover"), ("share", "serve"), ("audit", "--stop-after", "0s")):
        assert "only the owner of" in server.run(b, *command, status=1)[1]
    assert (
        "belongs to another user"
        in server.run(b, "share", "setup", "--fake-gpus", "1", status=1)[1]
    )
    assert holders(server.who()) == {0: [id_]}


def test_who_you_are_cant_be_said(server: Server) -> None:
    """A request has no place for a name, and the ids of another's lease don't help."""
    a, b, _ = server.users
    leased, id_ = server.holding(a, "1")
    program = (
        "import sys; from pathlib import Path; from gpuyard.share.service import wire\n"
        "from gpuyard.errors import GpuyardError\n"
        "directory, id_, uid = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])\n"
        "for what in ({'do': 'finish', 'childless': True}, {'do': 'leave'}, {'do': 'claim'}, {'do': 'release'}):\n"
        "    try: wire.call(directory, what.pop('do'), id=id_, uid=uid, user='root', **what)\n"
        "    except GpuyardError as error: print(error)\n"
        "try: wire.call(directory, 'ask', request={'count': 1, 'uid': uid})\n"
        "except GpuyardError as error: print(error)\n"
    )
    uid = str(__import__("pwd").getpwnam(a).pw_uid)
    tried = server.start_program(
        b, everybodys_gpuyard().python, "-c", program, str(server.directory), id_, uid
    )
    said = tried.communicate(timeout=30)[0].splitlines()
    assert said[:3] == [f"lease {id_} is {a}'s, not yours"] * 3
    assert "can release it" in said[3] and "not one that this version" in said[4]
    assert leased.poll() is None and holders(server.who()) == {0: [id_]}


def test_what_is_killed_is_freed_and_orphans_keep_their_gpu(server: Server) -> None:
    a, b, _ = server.users
    leased = server.start(a, "lease", "8", "--", "sh", "-c", "echo started; exec sleep 2")
    assert leased.stdout is not None and leased.stdout.readline() == "started\n"
    leased.kill()
    leased.wait()
    assert len(holders(server.who(b))) == 8
    server.run(b, "lease", "8", "--", "true")
    killed, _ = server.holding(a, "8")
    os.killpg(killed.pid, signal.SIGKILL)
    server.run(b, "lease", "8", "--wait", "10s", "--", "true")


def test_work_goes_on_while_the_service_is_down_and_it_can_come_back(server: Server) -> None:
    a, _, _ = server.users
    leased, id_ = server.holding(a, "1")
    pid = service_pid(server.directory)
    os.kill(pid, signal.SIGKILL)
    waits_for(lambda: not is_running(server.directory))
    assert "does not answer" in server.run(a, "lease", "1", "--", "true", status=1)[1]
    assert "does not answer" in server.run(a, "who", status=1)[1]
    assert holders(server.who("root")) == {0: [id_]}  # read from the store
    leased.terminate()
    assert leased.wait(60) == 143
    server.run("root", "share", "setup", "--fake-gpus", "8")
    assert holders(server.who(a)) == {}
    server.run(a, "lease", "8", "--now", "--", "true")


def test_the_service_keeps_nothing_open_of_whoever_set_it_up(server: Server) -> None:
    os.kill(service_pid(server.directory), signal.SIGKILL)
    waits_for(lambda: not is_running(server.directory))
    with tempfile.TemporaryFile() as file:
        setup = (sys.executable, "-m", "gpuyard", "share", "setup", "--fake-gpus", "8")
        environment = {**os.environ, "GPUYARD_SHARE_DIR": str(server.directory)}
        subprocess.run(
            setup, env=environment, pass_fds=[file.fileno()], check=True, capture_output=True
        )
        opened = Path(f"/proc/{service_pid(server.directory)}/fd")
        named = os.fstat(file.fileno()).st_ino
        assert named not in [entry.stat().st_ino for entry in opened.iterdir() if entry.exists()]


def test_nonsense_does_not_end_the_service(server: Server) -> None:
    for nonsense in (
        b"",
        b"\n",
        b"x" * 100_000,
        b"[" * 60_000 + b"\n",
        b'{"do": 1}\n',
        b'{"do": "ask"}\n',
    ):
        with (
            socket.socket(socket.AF_UNIX) as connection,
            wire.socket_path(server.directory) as path,
        ):
            connection.connect(path)
            with contextlib.suppress(OSError):
                connection.sendall(nonsense)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1000)
    server.run(server.users[0], "lease", "1", "--", "true")


def test_open_files_that_are_sent_to_the_service_are_not_kept(server: Server) -> None:
    """It has few, and everybody's leases need them."""
    opened = Path(f"/proc/{service_pid(server.directory)}/fd")
    with (
        socket.socket(socket.AF_UNIX) as connection,
        wire.socket_path(server.directory) as path,
        tempfile.TemporaryFile() as file,
    ):
        connection.connect(path)
        for _ in range(50):
            socket.send_fds(connection, [b" "], [file.fileno()])
        connection.sendall(b'{"do": "state"')
        named = os.fstat(file.fileno()).st_ino
        waits_for(
            lambda: is_running(server.directory)
        )  # it has read ours by now, and waits for more
        time.sleep(0.2)
        assert named not in [entry.stat().st_ino for entry in opened.iterdir() if entry.exists()]
        connection.sendall(b"}\n")
        assert connection.recv(10) == b'{"answer":'


def test_whoever_waits_keeps_their_place_while_the_service_is_down(server: Server) -> None:
    a, b, _ = server.users
    held, id_ = server.holding(a, "8")
    waiting = server.start(b, "lease", "1", "--", "echo", "it is my turn")
    assert waiting.stderr is not None and "number 1 in the queue" in waiting.stderr.readline()
    place = server.who()["queue"][0]["id"]
    os.kill(service_pid(server.directory), signal.SIGKILL)
    assert "does not answer" in waiting.stderr.readline()
    assert waiting.poll() is None
    server.run("root", "share", "setup", "--fake-gpus", "8")
    assert [one["id"] for one in server.who()["queue"]] == [place]
    server.run(a, "release", id_)
    assert waiting.communicate(timeout=30)[0] == "it is my turn\n"
    assert held.wait(60) == 143


def service_pid(directory: Path) -> int:
    with socket.socket(socket.AF_UNIX) as connection, wire.socket_path(directory) as path:
        connection.connect(path)
        from gpuyard.share.service.caller import peer

        return peer(connection).pid


def waits_for(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
