"""What somebody who leases GPUs relies on: with real processes, on test GPUs."""

import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.share.setup import set_up
from gpuyard.share.watch import processes
from tests.conftest import Cli
from tests.share.conftest import Start, holders

Who = Callable[[], dict[str, Any]]
Usage = Callable[[], list[dict[str, Any]]]


def test_a_command_sees_its_gpus_and_its_status_is_the_leases(
    start: Start, usage: Usage, who: Who
) -> None:
    leased = start(
        "lease", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $GPUYARD_LEASE; exit 3"
    )
    said, _ = leased.communicate()
    gpus, id_ = said.split()
    assert (gpus, leased.returncode) == ("0,1", 3)
    (lease,) = usage()
    assert (lease["id"], lease["gpus"], lease["ended"]) == (id_, [0, 1], "finished")
    assert holders(who()) == {}


def test_commands_that_cant_be_run_give_their_gpus_back(start: Start, who: Who) -> None:
    for command, status in (("no-such-program", 127), ("/etc/passwd", 126)):
        leased = start("lease", "1", "--", command)
        assert command in leased.communicate()[1]
        assert leased.returncode == status
    assert holders(who()) == {}


def test_a_program_that_is_not_there_is_said_before_anything_is_waited_for(start: Start) -> None:
    started(start, "8")
    for word in ("two", "\u00b2"):  # not a number, so a command
        leased = start("lease", word, "--", "true")
        assert f"{word} can't be run: there is no such program" in leased.communicate(timeout=20)[1]
        assert leased.returncode == 127


def test_gpus_are_held_while_the_command_runs_and_now_fails(
    start: Start, who: Who, cli: Cli
) -> None:
    leased = started(start, "8")
    said = who()
    (id_,) = {id_ for ids in holders(said).values() for id_ in ids}
    assert sorted(holders(said)) == list(range(8))
    (held,) = said["gpus"][5]["leases"]
    assert (held["user"], held["pid"], held["until"]) == (user(), leased.pid, None)
    assert held["command"].startswith("sh -c ")
    for how in (("--now",), ("--wait", "200ms")):
        refused = start("lease", "1", *how, "--", "true")
        assert "`gpuyard who` shows who holds them" in refused.communicate()[1]
        assert refused.returncode == 75
    leased.send_signal(signal.SIGTERM)
    assert leased.wait(60) == 143
    assert holders(who()) == {} and who()["queue"] == []
    assert id_


@pytest.mark.parametrize("how", ["ctrl-c", "closed"])
def test_a_terminals_ctrl_c_and_its_end_give_the_gpus_back(share: Path, who: Who, how: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        line = ("-m", "gpuyard", "lease", "2", "--", "sh", "-c", "echo up; exec sleep 600")
        os.execv(sys.executable, [sys.executable, *line])  # noqa: S606
    said = b""
    while b"up" not in said:
        said += os.read(terminal, 4096)
    assert sorted(holders(who())) == [0, 1]
    if how == "ctrl-c":
        os.write(terminal, b"\x03")
    else:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (130 if how == "ctrl-c" else 129)
    assert holders(who()) == {}
    if how == "ctrl-c":
        os.close(terminal)


def test_amd_gpus_have_their_own_variables(share: Path, start: Start) -> None:
    config = share / "share.json"
    config.write_text(config.read_text().replace('"nvidia"', '"amd"'), encoding="utf-8")
    shown = "echo $ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES"
    # ROCR's choice is made first, and HIP counts what is left from 0 on
    asked = start("lease", "--gpus", "3,4", "--", "sh", "-c", shown)
    assert asked.communicate(timeout=60) == ("3,4 0,1 0,1\n", "")


def test_a_turn_comes_first_come_first_served(start: Start, who: Who) -> None:
    first = started(start, "8", "--for", "1h")
    large = start("lease", "8", "--", "true")
    waits_for(lambda: len(who()["queue"]) == 1)
    small = start("lease", "1", "--now", "--", "true")
    assert small.wait(60) == 75
    last = start("lease", "1", "--", "true")
    waits_for(lambda: len(who()["queue"]) == 2)
    assert [one["count"] for one in who()["queue"]] == [8, 1]
    last.send_signal(signal.SIGINT)
    assert last.wait(60) == 130
    assert [one["count"] for one in who()["queue"]] == [8]
    first.terminate()
    first.wait(60)
    assert large.wait(60) == 0
    said = large.communicate()[1]
    assert "number 1 in the queue, expected to start in" in said


def test_a_waiting_client_that_is_stopped_is_passed_over(start: Start, who: Who) -> None:
    first = started(start, "8")
    stopped = start("lease", "8", "--", "true")
    waits_for(lambda: len(who()["queue"]) == 1 or stopped.poll() is not None)
    assert stopped.poll() is None, stopped.communicate()
    stopped.send_signal(signal.SIGSTOP)
    waits_for(lambda: is_stopped(stopped.pid))
    behind = start("lease", "8", "--", "true")
    first.terminate()
    assert behind.wait(60) == 0
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(60) == 0


def test_whatever_kills_the_launcher_its_command_keeps_the_gpu(
    start: Start, who: Who, usage: Usage
) -> None:
    leased = started(start, "1", command="exec sleep 600")
    (command,) = children_of(leased.pid)
    leased.kill()
    leased.wait()
    try:
        assert list(holders(who())) == [0]
    finally:
        os.kill(command, signal.SIGKILL)
    waits_for(lambda: not holders(who()))
    assert usage()[0]["ended"] == "died"


def test_a_child_that_closed_all_files_keeps_the_gpu_too(start: Start, who: Who) -> None:
    """Python's subprocess closes what it inherited, so such a child does not hold the lock."""
    program = (
        "import subprocess, sys, time; "
        "p = subprocess.Popen(['sleep', '600'], close_fds=True, start_new_session=True); "
        "print(p.pid, flush=True); p.wait()"
    )
    leased = start("lease", "1", "--", "python3", "-c", program)
    assert leased.stdout is not None
    child = int(leased.stdout.readline())
    python = children_of(leased.pid)[0]
    leased.kill()
    os.kill(python, signal.SIGKILL)
    leased.wait()
    try:
        assert list(holders(who())) == [0]
    finally:
        os.kill(child, signal.SIGKILL)
    waits_for(lambda: not holders(who()))


def test_what_a_command_leaves_in_the_background_keeps_the_gpu(start: Start, who: Who) -> None:
    """However soon the command itself has ended: so several times."""
    left = []
    try:
        for _ in range(5):
            leased = start("lease", "1", "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
            left.append(int(leased.communicate(timeout=60)[0]))
            assert leased.returncode == 0
        assert list(holders(who())) == [0, 1, 2, 3, 4]
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    waits_for(lambda: not holders(who()))


def test_a_lease_ends_with_its_time(start: Start, usage: Usage) -> None:
    leased = start(
        "lease", "1", "--for", "4s", "--", "sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60"
    )
    assert leased.wait(60) == 137
    assert "is over" in leased.communicate()[1]


def test_a_stopped_holder_is_killed_before_its_gpu_is_leased_again(
    start: Start, usage: Usage
) -> None:
    leased = started(start, "8", "--for", "6s", command="trap '' TERM; sleep 60 & wait; sleep 60")
    everybody = [leased.pid, *children_of(leased.pid)]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    pids = " ".join(map(str, everybody[1:]))
    after = start(
        "lease",
        "8",
        "--",
        "sh",
        "-c",
        f"for pid in {pids}; do grep -s ^State: /proc/$pid/status | grep -v zombie; done; true",
    )
    said, _ = after.communicate(timeout=60)
    assert said == ""
    assert leased.wait(60) < 0
    assert [lease["ended"] for lease in usage()] == ["time", "finished"]


def test_who_only_looks_at_a_lock_is_not_ended_with_its_holder(share: Path, start: Start) -> None:
    """As every client does that asks whether it is free."""
    leased = started(start, "8", "--for", "4s", command="sleep 60")
    (lock,) = (share / "locks").iterdir()
    with lock.open() as open_lock:
        looking = subprocess.Popen(("sleep", "600"), stdin=open_lock)
    try:
        leased.send_signal(signal.SIGSTOP)  # so that another has to end it
        assert start("lease", "8", "--", "true").wait(30) == 0
        assert looking.poll() is None
    finally:
        looking.kill()
        looking.wait()


def test_a_lock_that_is_looked_for_does_not_become_a_strangers(tmp_path: Path) -> None:
    """A kernel gives the inode of a removed file to the next one."""
    lock, strangers = tmp_path / "lock", []
    lock.touch()
    with processes.pinned(lock) as identity:
        lock.unlink()
        for number in range(50):
            (tmp_path / str(number)).touch()
            strangers.append((tmp_path / str(number)).stat())
    assert identity is not None
    assert identity not in {(one.st_dev, one.st_ino) for one in strangers}


def test_gpus_by_index_and_the_best_connected(share: Path, cli: Cli, start: Start) -> None:
    asked = start("lease", "--gpus", "3,4", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert asked.communicate()[0] == "3,4\n"
    # in a hybrid cube mesh of V100 0 and 3 are joined by two NVLinks, 0 and 1 by one
    set_up(share, fake_gpus=8, topology="nvlink-hybrid-cube-mesh")
    best = start("lease", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert best.communicate()[0] == "0,3\n"


@pytest.mark.parametrize("topology", ["nvlink-pairs", "torus", "dual-root"])
def test_of_sixteen_gpus_the_best_connected_are_chosen_too(share: Path, topology: str) -> None:
    """As fast as what `best_gpus` finds, whichever are free; the lowest indices would not be."""
    import random

    from gpuyard.catalog import gpus as known
    from gpuyard.hardware import PRESETS, all_reduce, build_preset
    from gpuyard.hardware.rings import best_gpus
    from gpuyard.share.store.lease import WHOLE
    from gpuyard.share.turns.choice import choose

    config = set_up(share, fake_gpus=16, topology=topology)
    graph = build_preset(topology, known().get(PRESETS[topology].usual_gpu), 16)
    chance = random.Random(3)
    for count in (2, 2, 4, 4):
        free = sorted(chance.sample(range(16), 9))
        chosen = choose(count, WHOLE, (), dict.fromkeys(free, WHOLE), config.rates)
        assert chosen is not None and set(chosen) <= set(free) and len(set(chosen)) == count
        found = all_reduce(graph, [graph.gpus[i] for i in chosen])
        best = best_gpus(graph, count, [graph.gpus[i] for i in free])
        assert found.bytes_per_second == best.bytes_per_second
    if topology == "nvlink-pairs":
        assert choose(2, WHOLE, (), dict.fromkeys(range(1, 16), WHOLE), config.rates) == (2, 3)


def test_small_jobs_share_a_gpu_and_never_more_than_all_of_it(start: Start, who: Who) -> None:
    half = started(start, "1", "--share", "0.5")
    started(start, "1", "--memory", "10GB")
    assert {gpu: len(ids) for gpu, ids in holders(who()).items()} == {0: 2}
    started(start, "1", "--share", "0.5")
    assert {gpu: len(ids) for gpu, ids in holders(who()).items()} == {0: 2, 1: 1}
    whole = start("lease", "--gpus", "0", "--now", "--", "true")
    assert whole.wait(60) == 75
    half.terminate()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("9", "--", "true"), "9 GPUs were requested; this machine has 8"),
        (("--gpus", "8", "--", "true"), "there is no GPU 8"),
        (("--gpus", "one", "--", "true"), "expected GPUs by index like 3,4, got 'one'"),
        (("1", "--share", "1.5", "--", "true"), "must be between 0 % and 100 %"),
        (("1", "--memory", "80GB", "--", "true"), "no GPU has that much memory"),
        (("1", "--now", "--wait", "1s", "--", "true"), "use either --now or --wait"),
        (("1", "--for", "2", "--", "true"), "has no unit; write a duration like '2h'"),
        (("1", "--memory", "12", "--", "true"), "has no unit; write a size like '12GB'"),
        (("1",), "nothing to run"),
        (("0", "--", "true"), "a lease is for 1 GPU or more"),
        (("1", "--for", "0s", "--", "true"), "a lease lasts more than 0 seconds"),
        (("1", "--", ""), "the name of a program can't be empty"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    share: Path, cli: Cli, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in " ".join(cli("lease", *arguments, status=2).stderr.split())


def test_a_gpu_cant_be_booked_twice_even_by_writing_rows(share: Path, start: Start) -> None:
    started(start, "--gpus", "2")
    store = sqlite3.connect(share / "leases.sqlite")
    (number,) = store.execute("SELECT lease FROM holds").fetchone()
    for parts in (1_000_000, 1):
        with pytest.raises(sqlite3.IntegrityError, match=r"held already|UNIQUE"):
            store.execute("INSERT INTO holds VALUES (?, 2, ?)", (number + 1, parts))
    store.execute("INSERT INTO holds VALUES (?, 3, 600000)", (number,))
    with pytest.raises(sqlite3.IntegrityError, match="held already"):
        store.execute("INSERT INTO holds VALUES (?, 3, 600000)", (number + 1,))
    with pytest.raises(sqlite3.IntegrityError, match=r"held already|UNIQUE"):
        store.execute("UPDATE holds SET gpu = 2 WHERE gpu = 3")
    store.close()


def test_release_ends_the_processes_first(start: Start, who: Who, cli: Cli, usage: Usage) -> None:
    leased = started(start, "2")
    (id_,) = {id_ for ids in holders(who()).values() for id_ in ids}
    assert f"Lease {id_} of {user()} is released: GPU 0, 1." in cli("release", id_).stderr
    assert leased.wait(60) != 0
    assert holders(who()) == {}
    assert usage()[0]["ended"] == "released"
    assert "there is no lease" in cli("release", id_, status=2).stderr


def test_a_lease_can_be_released_from_inside(start: Start, who: Who, usage: Usage) -> None:
    command = f"{sys.executable} -m gpuyard release $GPUYARD_LEASE; exec sleep 60"
    leased = started(start, "2", command=command)
    complained = leased.communicate(timeout=30)[1]
    assert "is released: GPU 0, 1." in complained
    assert leased.returncode == 143
    assert (holders(who()), usage()[0]["ended"]) == ({}, "released")


def started(start: Start, *arguments: str, command: str = "exec sleep 60") -> Any:
    """A lease whose command runs."""
    leased = start("lease", *arguments, "--", "sh", "-c", f"echo started; {command}")
    assert leased.stdout is not None
    assert leased.stdout.readline() == "started\n", leased.communicate()
    return leased


def waits_for(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def is_stopped(pid: int) -> bool:
    from gpuyard.share.watch.processes import is_stopped as stopped

    return stopped(pid)


def user() -> str:
    from gpuyard.share.service.caller import this_process

    return this_process().user


def test_a_client_that_is_stopped_while_it_writes_does_not_stop_the_others(
    share: Path, start: Start
) -> None:
    program = (
        "import sqlite3, sys, time; store = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "store.execute('BEGIN IMMEDIATE'); print('began', flush=True); "
        "time.sleep(0.2); store.execute('COMMIT')"
    )
    writer = subprocess.Popen(
        (sys.executable, "-c", program, str(share / "leases.sqlite")), stdout=subprocess.PIPE
    )
    assert writer.stdout is not None and writer.stdout.readline() == b"began\n"
    writer.send_signal(signal.SIGSTOP)
    assert start("lease", "1", "--", "true").wait(30) == 0
    assert writer.wait(60) == 0
    writer.stdout.close()


def test_words_that_are_not_utf_8_are_passed_on_as_they_are(
    share: Path, start: Start, usage: Usage
) -> None:
    latin = "donn\udce9es"  # as Python has a byte that is none of UTF-8's
    command = ("--project", latin, "--", "printf", "%s", latin)
    told = start("lease", "1", *command, errors="surrogateescape")
    assert told.communicate(timeout=30) == (latin, "")
    (lease,) = usage()
    assert lease["project"] == "donn?es" and lease["command"] == "printf %s 'donn?es'"


def test_the_quick_reader_knows_every_option_of_the_command() -> None:
    import typer

    from gpuyard.cli.app import app
    from gpuyard.cli.share.lease_line import FLAGS, VALUES, read_line

    root: Any = typer.main.get_command(app)
    command = root.get_command(typer.Context(root), "lease")
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "wide"]
    assert {p.opts[0]: p.name for p in options} == VALUES | FLAGS
    assert {p.opts[0] for p in options if p.is_flag} == set(FLAGS)
    assert read_line(["2", "--for=2h", "--gpus", "1,2", "--now", "--", "a", "--now"]) == {
        "what": ["2", "a", "--now"],
        "for_": "2h",
        "gpus": "1,2",
        "now": True,
    }
    for unusual in (["--help"], ["--fro", "2h"], ["--for"], ["1", "nvidia-smi"], ["-h"]):
        assert read_line(unusual) is None


def test_a_plain_lease_imports_nothing_heavy(share: Path) -> None:
    program = (
        "import sys; sys.argv = ['gpuyard', 'lease', '1', '--', 'true']\n"
        "from gpuyard.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as leaving: print(leaving.code)\n"
        "heavy = ('typer', 'rich', 'pydantic', 'numpy', 'psutil', 'gpuyard.cli.app', 'subprocess')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["0", "[]"]
