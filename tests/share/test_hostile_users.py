"""Hostile users: nothing that they read, send, or start takes GPUs from others or blocks them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.share.config import read_config
from tests.conftest import USERS
from tests.other_users import public_gpuyard
from tests.share.conftest import holders, needs_root
from tests.share.test_users import Server, accounts, server, waits_for

__all__ = ["accounts", "server"]
pytestmark = [needs_root, USERS]

# SQLite's writers lock byte 120 of the log index exclusively; any reader of that file can hold a shared lock forever
LOCK_THE_LOG = (
    "import fcntl, struct, sys, time\n"
    "file = open(sys.argv[1] + '/leases.sqlite-shm', 'rb')\n"
    "fcntl.fcntl(file, fcntl.F_SETLK, struct.pack('hhqqi', fcntl.F_RDLCK, 0, 120, 1, 0))\n"
    "print('locked', flush=True); time.sleep(60)\n"
)


def test_a_reader_of_the_store_cannot_block_leases(server: Server) -> None:
    a, b, _ = server.users
    server.run(a, "lease", "1", "--", "true")
    locking = server.start_program(
        b, public_gpuyard().python, "-c", LOCK_THE_LOG, str(server.directory)
    )
    assert locking.stdout is not None and locking.stderr is not None
    assert locking.stdout.readline() == "" and "PermissionError" in locking.stderr.read()
    server.run(a, "lease", "1", "--now", "--", "true")


def test_a_setuid_program_is_stopped_at_the_end_of_its_lease(
    server: Server,
) -> None:
    """Like `su` or `passwd`: /proc shows root as its owner, though the user started it and may stop it."""
    a, b, _ = server.users
    program = server.directory.parent / "sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    command = ("sh", "-c", f"echo started; exec {program} 60")
    leased = server.start(a, "lease", "8", "--for", "1s", "--", *command)
    assert leased.stdout is not None and leased.stdout.readline() == "started\n"
    leased.kill()
    leased.wait()
    server.run(b, "lease", "8", "--wait", "20s", "--", "true")


def test_users_cannot_give_back_gpus_that_are_still_in_use(server: Server) -> None:
    a, b, _ = server.users
    leased, id_ = server.start_lease(a, "8")
    print_line = (
        "import sys; from pathlib import Path; from gpuyard.share import wire\n"
        "more = {'childless': True} if sys.argv[2] == 'finish' else {}\n"
        "print(wire.call(Path(sys.argv[1]), sys.argv[2], lease_id=sys.argv[3], **more)[0])\n"
    )
    for operation in ("finish", "leave"):
        output = server.start_program(
            a, public_gpuyard().python, "-c", print_line, str(server.directory), operation, id_
        ).communicate(timeout=30)
        assert output[0] in ("False\n", "None\n"), output
        assert (server.directory / "locks" / f"{id_}.lock").exists(), operation
        assert set(holders(server.who(b))) == set(range(8)), operation
    leased.terminate()
    leased.wait(20)
    server.run(b, "lease", "8", "--wait", "10s", "--", "true")


def test_root_refuses_a_directory_that_others_could_replace(server: Server) -> None:
    """The service follows the path as root, so only root may be able to rename a part of it."""
    a, _, _ = server.users
    theirs = server.directory.parent / "theirs"
    theirs.mkdir()
    shutil.chown(theirs, a)
    link = server.directory.parent / "link"
    link.symlink_to(theirs)
    open_to_all = server.directory.parent / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for place in (theirs / "share", link / "share", theirs / "a" / "share", open_to_all / "share"):
        elsewhere = Server(place, server.users, server.started)
        process = elsewhere.start("root", "share", "setup", "--fake-gpus", "1")
        assert "could replace it" in process.communicate(timeout=60)[1]
        assert process.returncode == 1 and not place.exists()


# Keeps the lock of a lease where /proc shows no descriptor of it, with none of the marks of the lease, and ignores SIGTERM.
HIDE = (
    "import ctypes, os, signal, socket, sys, time\n"
    "def is_lock(fd):\n"
    "    try: return os.readlink(f'/proc/self/fd/{fd}').endswith('.lock')\n"
    "    except OSError: return False\n"
    "(lock,) = [int(fd) for fd in os.listdir('/proc/self/fd') if is_lock(fd)]\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if sys.argv[1] == 'mapped':\n"
    "    map_ = ctypes.CDLL(None).mmap\n"  # Python's own keeps a descriptor
    "    map_.restype = ctypes.c_void_p\n"
    "    map_.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)\n"
    "    assert map_(None, 1, 1, 2, lock, 0) != 2**64 - 1\n"
    "if sys.argv[1] == 'in flight':\n"
    "    kept = socket.socketpair()\n"
    "    socket.send_fds(kept[0], [b' '], [lock])\n"
    "if sys.argv[1] != 'forking': os.close(lock)\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "os.kill(int(sys.argv[2]), signal.SIGKILL)\n"
    "print(os.getpid(), flush=True)\n"
    "os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.dup2(1, 2)\n"
    "end = time.time() + 120\n"
    "while sys.argv[1] == 'forking' and time.time() < end:\n"
    "    if os.fork(): os._exit(0)\n"
    "    time.sleep(0.01)\n"
    "time.sleep(600)\n"
)


def start_hidden(server: Server, user: str, how: str, *arguments: str) -> int:
    """Start a lease of all GPUs whose process hides, kill its launcher, and return the process."""
    replace(read_config(server.directory), grace_seconds=0.5).write(server.directory)
    hide = ("env", "-i", public_gpuyard().python, "-c", HIDE, how)
    leased = server.start(
        user, "lease", "8", *arguments, "--", "sh", "-c", '"$@" $PPID', "sh", *hide
    )
    assert leased.stdout is not None
    return int(leased.stdout.readline())


@pytest.mark.parametrize("how", ["mapped", "in flight"])
def test_a_lease_ends_at_its_time_whoever_holds_its_lock(server: Server, how: str) -> None:
    a, b, _ = server.users
    hidden = start_hidden(server, a, how, "--for", "3s")
    try:
        readings = {"0": {"pids": [hidden], "memory_used_bytes": 23_000_000_000}}
        (server.directory / "fake-readings.json").write_text(json.dumps(readings))
        waits_for(lambda: holders(server.who(b)) == {})  # the service ends it, though nobody asks
        if is_alive(hidden):
            audit = server.run("root", "audit", "--json", status=1)[0]
            assert [v["pid"] for v in json.loads(audit)["violations"]] == [hidden]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(hidden, signal.SIGKILL)
    server.run(b, "lease", "8", "--wait", "20s", "--", "true")


def test_a_chain_of_forks_does_not_keep_gpus(server: Server) -> None:
    """Each process of the chain lives for 10 ms, so that a look at all processes names one that has ended."""
    a, b, _ = server.users
    first = start_hidden(server, a, "forking", "--for", "3s")
    try:
        waits_for(lambda: holders(server.who(b)) == {})
        server.run(b, "lease", "8", "--now", "--", "true")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first, signal.SIGKILL)


@pytest.mark.parametrize("how", ["mapped", "in flight"])
def test_root_can_always_release(server: Server, how: str) -> None:
    a, b, _ = server.users
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", server.directory], capture_output=True, text=True, check=True
    )
    if how == "mapped" and kind.stdout.strip() == "overlayfs":
        pytest.skip("on overlayfs, a mapping does not hold a lock")
    hidden = start_hidden(server, a, how)
    try:
        (lease,) = {lease["id"] for gpu in server.who()["gpus"] for lease in gpu["leases"]}
        server.run("root", "release", lease)
        assert holders(server.who()) == {}
        server.run(b, "lease", "8", "--now", "--", "true")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(hidden, signal.SIGKILL)


def test_an_isolated_holder_keeps_its_gpus_until_it_is_stopped(server: Server) -> None:
    setup = server.start("root", "share", "setup", "--fake-gpus", "8", "--isolate")
    if setup.wait(60):
        pytest.skip("no control groups here that close devices")
    a, b, _ = server.users
    hidden = start_hidden(server, a, "closed")  # nobody holds the lock
    server.run(b, "lease", "1", "--now", "--", "true", status=75)
    (lease,) = {lease["id"] for gpu in server.who()["gpus"] for lease in gpu["leases"]}
    server.run("root", "release", lease)
    waits_for(lambda: not is_alive(hidden))
    hidden = start_hidden(server, a, "in flight", "--for", "3s")
    server.run(b, "lease", "8", "--wait", "30s", "--", "true")
    assert not is_alive(hidden)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False
