"""Several Unix users and one service: everyone can use it, and no one can change leases of others."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import gpuyard
from gpuyard.share import wire
from gpuyard.share.service import is_running
from tests.conftest import USERS
from tests.other_users import public_gpuyard
from tests.share.conftest import holders, needs_root
from tests.share.test_isolation import LOOK, remove_groups

pytestmark = [needs_root, USERS]


@dataclass
class Server:
    """A share of root with its service, and accounts for the test."""

    directory: Path
    users: tuple[str, ...]
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def start(self, user: str, *arguments: str) -> "subprocess.Popen[str]":
        return self.start_program(user, public_gpuyard().python, "-m", "gpuyard", *arguments)

    def start_program(self, user: str, *command: str) -> "subprocess.Popen[str]":
        environment = {
            "PATH": os.environ["PATH"],
            **public_gpuyard().environment,
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
        output, error_output = process.communicate(timeout=60)
        log = (self.directory / "service.log").read_text()
        assert process.returncode == status, (process.returncode, output, error_output, log)
        return output, error_output

    def start_lease(self, user: str, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
        """Start a lease, wait until its command runs, and return the process and the lease ID."""
        leased = self.start(
            user, "lease", *arguments, "--", "sh", "-c", "echo $GPUYARD_LEASE; exec sleep 60"
        )
        assert leased.stdout is not None
        return leased, leased.stdout.readline().strip()

    def who(self, user: str = "root") -> dict[str, Any]:
        return dict(json.loads(self.run(user, "who", "--json")[0]))


@pytest.fixture
def accounts() -> Iterator[tuple[str, ...]]:
    """Two users, and an admin whose group has the name of the account."""
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
    server = Server(directory / "share", accounts)
    server.run("root", "share", "setup", "--fake-gpus", "8", "--admin-group", accounts[2])
    yield server
    for process in server.started:
        if process.poll() is None:  # else its number may be another's by now
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    remove_groups(server.directory)
    while (
        directory.exists()
    ):  # the service, which ends when its socket is gone, may write meanwhile
        shutil.rmtree(directory, ignore_errors=True)


def test_a_users_processes_can_open_only_their_gpus_and_cant_leave(server: Server) -> None:
    setup = server.start("root", "share", "setup", "--fake-gpus", "4", "--isolate")
    errors = setup.communicate(timeout=60)[1]
    if setup.returncode:
        pytest.skip(f"no control groups here that close devices: {errors}")
    leave = (
        "for group in /sys/fs/cgroup /sys/fs/cgroup/*; do echo $$ > $group/cgroup.procs; done "
        '2>/dev/null; exec "$@"'
    )
    paths = [str(server.directory / "devices" / f"gpu{i}") for i in range(4)]
    look = ("sh", "-c", leave, "sh", public_gpuyard().python, "-c", LOOK, *paths)
    a, b, _ = server.users
    server.start_lease(b, "--gpu-ids", "0")
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
    _, first = server.start_lease(a, "3")
    _, second = server.start_lease(b, "2", "--for", "1h")
    for user in ("root", a, b):
        output = server.who(user)
        assert holders(output) == {0: [first], 1: [first], 2: [first], 3: [second], 4: [second]}
        assert [gpu["leases"][0]["user"] for gpu in output["gpus"][:5]] == [a, a, a, b, b]
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
    leased, id_ = server.start_lease(a, "1")
    output = server.run(b, "release", id_, status=1)[1]
    assert f"only {a} and members of the group {admin} can release it" in output
    assert leased.poll() is None
    server.run(admin, "release", id_)
    assert leased.wait(60) != 0
    _, id_ = server.start_lease(a, "1")
    server.run(a, "release", id_)
    assert holders(server.who()) == {}


def test_reservations_are_the_callers_own_and_admins_drain(server: Server) -> None:
    a, b, admin = server.users
    reservation = json.loads(
        server.run(a, "reserve", "8", "--start", "now", "--for", "1h", "--json")[0]
    )
    assert reservation["user"] == a
    server.run(b, "lease", "1", "--now", "--for", "1min", "--", "true", status=75)
    server.run(a, "lease", "8", "--now", "--", "true")
    output = server.run(b, "reserve", "cancel", reservation["id"], status=1)[1]
    assert f"only {a} and members of the group {admin} can cancel it" in output
    assert json.loads(server.run(b, "reserve", "list", "--json")[0])["reservations"] == [
        reservation
    ]
    server.run(admin, "reserve", "cancel", reservation["id"])
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
    output = server.run(b, "lease", "2", "--now", "--", "true", status=2)[1]
    assert f"the group {b} has a quota of 1 GPU at once" in output
    server.run(a, "lease", "8", "--now", "--", "true")
    server.run(b, "lease", "1", "--now", "--", "true")


def test_other_users_cannot_write_the_store_or_hold_a_lock(server: Server) -> None:
    a, b, _ = server.users
    _, id_ = server.start_lease(a, "1")
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
            tried = server.start_program(user, public_gpuyard().python, "-c", attempt)
            output = tried.communicate(timeout=30)[1]
            assert tried.returncode == 1
            assert "PermissionError" in output or "unable to open database" in output, (
                attempt,
                output,
            )
    for command in (("share", "recover"), ("share", "serve"), ("audit", "--stop-after", "0s")):
        assert "only the owner of" in server.run(b, *command, status=1)[1]
    assert (
        "belongs to another user"
        in server.run(b, "share", "setup", "--fake-gpus", "1", status=1)[1]
    )
    assert holders(server.who()) == {0: [id_]}


def test_a_request_cannot_name_another_user(server: Server) -> None:
    """A request has no field for a name, and the ID of another user's lease gives no rights."""
    a, b, _ = server.users
    leased, id_ = server.start_lease(a, "1")
    program = (
        "import sys; from pathlib import Path; from gpuyard.share import wire\n"
        "from gpuyard.errors import GpuyardError\n"
        "directory, id_, uid = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])\n"
        "for what in ({'do': 'finish', 'childless': True}, {'do': 'leave'}, {'do': 'claim'}, {'do': 'release'}):\n"
        "    try: wire.call(directory, what.pop('do'), lease_id=id_, **what)\n"
        "    except GpuyardError as error: print(error)\n"
        "for what in ({'do': 'ask', 'request': {'count': 1, 'uid': uid}}, {'do': 'state', 'uid': uid}):\n"
        "    try: wire.call(directory, what.pop('do'), **what)\n"
        "    except GpuyardError as error: print(error)\n"
    )
    uid = str(__import__("pwd").getpwnam(a).pw_uid)
    tried = server.start_program(
        b, public_gpuyard().python, "-c", program, str(server.directory), id_, uid
    )
    output = tried.communicate(timeout=30)[0].splitlines()
    assert output[:3] == [f"lease {id_} belongs to {a}, not to you"] * 3
    assert "can release it" in output[3] and "does not know this request" in output[4]
    assert "does not know 'uid'" in output[5]
    assert leased.poll() is None and holders(server.who()) == {0: [id_]}


def test_killed_leases_are_freed_and_orphans_keep_their_gpu(server: Server) -> None:
    a, b, _ = server.users
    leased = server.start(a, "lease", "8", "--", "sh", "-c", "echo started; exec sleep 2")
    assert leased.stdout is not None and leased.stdout.readline() == "started\n"
    leased.kill()
    leased.wait()
    assert len(holders(server.who(b))) == 8
    server.run(b, "lease", "8", "--", "true")
    killed, _ = server.start_lease(a, "8")
    os.killpg(killed.pid, signal.SIGKILL)
    server.run(b, "lease", "8", "--wait", "10s", "--", "true")


def test_work_continues_while_the_service_is_down(server: Server) -> None:
    a, _, _ = server.users
    leased, id_ = server.start_lease(a, "1")
    pid = service_pid(server.directory)
    os.kill(pid, signal.SIGKILL)
    waits_for(lambda: not is_running(server.directory))
    failing = [server.start(a, "lease", "1", "--", "true"), server.start(a, "who")]
    for process in failing:
        assert "does not answer" in process.communicate(timeout=60)[1]
        assert process.returncode == 1
    assert holders(server.who("root")) == {0: [id_]}  # read from the store
    leased.terminate()
    assert leased.wait(60) == 143
    server.run("root", "share", "setup", "--fake-gpus", "8")
    assert holders(server.who(a)) == {}
    server.run(a, "lease", "8", "--now", "--", "true")


def test_commands_wait_for_a_service_that_restarts(server: Server) -> None:
    a, _, _ = server.users
    watching = server.start(a, "who", "--watch", "--json")
    assert watching.stdout is not None and watching.stderr is not None
    assert watching.stdout.readline() == "{\n"
    os.kill(service_pid(server.directory), signal.SIGKILL)
    assert "does not answer" in watching.stderr.readline()
    commands = (("lease", "1", "--", "true"), ("who",), ("usage",))
    waiting = [server.start(a, *command) for command in commands]
    server.run("root", "share", "restart")
    for process in waiting:
        _, error_output = process.communicate(timeout=60)
        assert process.returncode == 0, error_output
    # the document that was printed before the service went away, and one after it
    while watching.stdout.readline() != "{\n":
        assert watching.poll() is None


@pytest.mark.parametrize("command", ["setup --fake-gpus 8", "restart"])
def test_the_service_runs_new_code_after_an_upgrade(server: Server, command: str) -> None:
    before = service_pid(server.directory)
    _, id_ = server.start_lease(server.users[0], "1")
    server.run("root", "share", *command.split())
    assert service_pid(server.directory) != before
    assert holders(server.who(server.users[0])) == {0: [id_]}


@pytest.mark.parametrize("part", ["interpreter", "source"])
def test_setup_refuses_an_install_that_other_users_cannot_run(server: Server, part: str) -> None:
    private = server.directory.parent / "private"
    private.mkdir(mode=0o700)
    python, variables = public_gpuyard().python, dict(public_gpuyard().environment)
    if part == "interpreter":
        named = python = str(private / "python")
        Path(named).symlink_to(public_gpuyard().python)
    else:
        source = Path(gpuyard.__file__).parent
        shutil.copytree(source, private / "gpuyard", ignore=shutil.ignore_patterns("__pycache__"))
        variables["PYTHONPATH"] = f"{private}:{variables['PYTHONPATH']}"
        named = str(private / "gpuyard")
    place = server.directory.parent / "another"
    environment = {**os.environ, **variables, "GPUYARD_SHARE_DIR": str(place)}
    setup = (python, "-m", "gpuyard", "share", "setup", "--fake-gpus", "1")
    result = subprocess.run(setup, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and named in result.stderr, result.stderr
    assert not place.exists()


def test_the_service_keeps_no_files_of_its_starter_open(server: Server) -> None:
    os.kill(service_pid(server.directory), signal.SIGKILL)
    waits_for(lambda: not is_running(server.directory))
    with tempfile.TemporaryFile() as file:
        install = public_gpuyard()
        setup = (install.python, "-m", "gpuyard", "share", "setup", "--fake-gpus", "8")
        environment = {
            **os.environ,
            **install.environment,
            "GPUYARD_SHARE_DIR": str(server.directory),
        }
        subprocess.run(
            setup, env=environment, pass_fds=[file.fileno()], check=True, capture_output=True
        )
        opened = Path(f"/proc/{service_pid(server.directory)}/fd")
        named = os.fstat(file.fileno()).st_ino
        assert named not in [entry.stat().st_ino for entry in opened.iterdir() if entry.exists()]


def test_malformed_input_does_not_stop_the_service(server: Server) -> None:
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
    """The service has few descriptors, and everyone's leases need them."""
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


def test_the_queue_is_kept_while_the_service_is_down(server: Server) -> None:
    a, b, _ = server.users
    held, id_ = server.start_lease(a, "8")
    waiting = server.start(b, "lease", "1", "--", "echo", "it is my turn")
    assert waiting.stderr is not None and "number 1 in the queue" in waiting.stderr.readline()
    place = server.who()["queue"][0]["id"]
    os.kill(service_pid(server.directory), signal.SIGKILL)
    assert "does not answer" in waiting.stderr.readline()
    assert waiting.poll() is None
    server.run("root", "share", "setup", "--fake-gpus", "8")
    assert [request["id"] for request in server.who()["queue"]] == [place]
    server.run(a, "release", id_)
    assert waiting.communicate(timeout=30)[0] == "it is my turn\n"
    assert held.wait(60) == 143


def service_pid(directory: Path) -> int:
    with socket.socket(socket.AF_UNIX) as connection, wire.socket_path(directory) as path:
        connection.connect(path)
        from gpuyard.share.caller import read_peer

        return read_peer(connection).pid


def waits_for(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def test_users_see_only_their_own_commands_unless_an_admin_allows_all(server: Server) -> None:
    one, other, admin = server.users
    server.start_lease(one, "1")

    def read_commands(user: str) -> list[str | None]:
        leases = [lease for gpu in server.who(user)["gpus"] for lease in gpu["leases"]]
        history = json.loads(server.run(user, "usage", "--json")[0])["leases"]
        assert [lease["user"] for lease in (*leases, *history)] == [one, one]
        return [lease["command"] for lease in (*leases, *history)]

    for user in (one, admin, "root"):
        assert all("sleep 60" in str(command) for command in read_commands(user))
    assert read_commands(other) == [None, None]
    assert "hidden" in server.run(other, "who")[0]
    # the service itself hides it: another client would not see it either
    ask = (
        "import sys; from gpuyard.share import wire; from pathlib import Path; here = Path(sys.argv[1])\n"
        "print(wire.call(here, 'state'), wire.call(here, 'history_page', after=0, since=0.0))"
    )
    client = server.start_program(other, public_gpuyard().python, "-c", ask, str(server.directory))
    answer, error = client.communicate()
    assert answer.count(f"'user': '{one}'") == 2, error
    assert "sleep 60" not in answer
    server.run(other, "share", "policy", "--commands", "all", status=1)
    server.run("root", "share", "policy", "--commands", "mine", status=2)
    server.run("root", "share", "policy", "--commands", "all")
    assert all("sleep 60" in str(command) for command in read_commands(other))
