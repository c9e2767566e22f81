"""Users who don't keep to the rules: what they can read, send or start takes no GPU from others and stops nobody."""

import shutil

from tests.conftest import MACHINE
from tests.other_users import everybodys_gpuyard
from tests.share.conftest import holders, needs_root
from tests.share.test_users import Server, accounts, server

__all__ = ["accounts", "server"]
pytestmark = [needs_root, MACHINE]

# SQLite's writers take the byte 120 of the log's index alone; whoever may read that file can share it for ever
LOCK_THE_LOG = (
    "import fcntl, struct, sys, time\n"
    "file = open(sys.argv[1] + '/leases.sqlite-shm', 'rb')\n"
    "fcntl.fcntl(file, fcntl.F_SETLK, struct.pack('hhqqi', fcntl.F_RDLCK, 0, 120, 1, 0))\n"
    "print('locked', flush=True); time.sleep(60)\n"
)


def test_who_reads_the_store_cant_keep_others_from_leasing(server: Server) -> None:
    a, b, _ = server.users
    server.run(a, "lease", "1", "--", "true")
    locking = server.start_program(
        b, everybodys_gpuyard().python, "-c", LOCK_THE_LOG, str(server.directory)
    )
    assert locking.stdout is not None and locking.stderr is not None
    assert locking.stdout.readline() == "" and "PermissionError" in locking.stderr.read()
    server.run(a, "lease", "1", "--now", "--", "true")


def test_a_program_that_runs_as_root_for_its_user_keeps_no_gpu_past_its_time(
    server: Server,
) -> None:
    """Like `su` or `passwd`: /proc calls it root's, though the user started it and may end it."""
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


def test_nobody_gives_back_gpus_that_they_still_use(server: Server) -> None:
    a, b, _ = server.users
    leased, id_ = server.holding(a, "8")
    say = (
        "import sys; from pathlib import Path; from gpuyard.share.service import wire\n"
        "print(wire.call(Path(sys.argv[1]), sys.argv[2], id=sys.argv[3], childless=True)[0])\n"
    )
    for operation in ("finish", "leave"):
        said = server.start_program(
            a, everybodys_gpuyard().python, "-c", say, str(server.directory), operation, id_
        ).communicate(timeout=30)
        assert said[0] in ("False\n", "None\n"), said
        assert (server.directory / "locks" / f"{id_}.lock").exists(), operation
        assert set(holders(server.who(b))) == set(range(8)), operation
    leased.terminate()
    leased.wait(20)
    server.run(b, "lease", "8", "--wait", "10s", "--", "true")


def test_root_keeps_no_share_where_another_could_replace_it(server: Server) -> None:
    """The service follows the path as root: whoever may rename a part of it would say what that is."""
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
