"""The guarantees of a lease, with real processes on test GPUs."""

import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpuyard.share import processes
from gpuyard.share.broker import Broker
from gpuyard.share.clock import Clock
from gpuyard.share.models import LeaseRequest
from gpuyard.share.setup import set_up
from gpuyard.share.store import MAX_SILENCE_SECONDS
from tests.conftest import Cli
from tests.share.conftest import Start, holders

Who = Callable[[], dict[str, Any]]
Usage = Callable[[], list[dict[str, Any]]]


def test_a_command_sees_its_gpus_and_its_exit_status_is_returned(
    start: Start, usage: Usage, who: Who
) -> None:
    leased = start(
        "lease", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $GPUYARD_LEASE; exit 3"
    )
    output, _ = leased.communicate()
    gpus, id_ = output.split()
    assert (gpus, leased.returncode) == ("0,1", 3)
    (lease,) = usage()
    assert (lease["id"], lease["gpus"], lease["ended"]) == (id_, [0, 1], "finished")
    assert holders(who()) == {}


def test_commands_that_cannot_be_run_give_their_gpus_back(start: Start, who: Who) -> None:
    for command, status in (("no-such-program", 127), ("/etc/passwd", 126)):
        leased = start("lease", "1", "--", command)
        assert command in leased.communicate()[1]
        assert leased.returncode == status
    assert holders(who()) == {}


def test_a_missing_program_is_reported_before_waiting(start: Start) -> None:
    start_lease(start, "8")
    for word in ("two", "\u00b2"):  # not a number, so a command
        leased = start("lease", word, "--", "true")
        assert word in leased.communicate(timeout=20)[1]
        assert leased.returncode == 127


def test_gpus_are_held_while_the_command_runs_and_now_fails(
    start: Start, who: Who, cli: Cli
) -> None:
    leased = start_lease(start, "8")
    output = who()
    (id_,) = {id_ for ids in holders(output).values() for id_ in ids}
    assert sorted(holders(output)) == list(range(8))
    (held,) = output["gpus"][5]["leases"]
    assert (held["user"], held["pid"], held["until"]) == (user(), leased.pid, None)
    assert held["command"].startswith("sh -c ")
    for how in (("--now",), ("--wait", "200ms")):
        refused = start("lease", "1", *how, "--", "true")
        assert "`gpuyard who`" in refused.communicate()[1]
        assert refused.returncode == 75
    leased.send_signal(signal.SIGTERM)
    assert leased.wait(60) == 143
    assert holders(who()) == {} and who()["queue"] == []
    assert id_


@pytest.mark.parametrize("how", ["ctrl-c", "closed"])
def test_ctrl_c_and_a_closed_terminal_give_the_gpus_back(share: Path, who: Who, how: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        line = ("-m", "gpuyard", "lease", "2", "--", "sh", "-c", "echo up; exec sleep 600")
        os.execv(sys.executable, [sys.executable, *line])  # noqa: S606
    output = b""
    while b"up" not in output:
        output += os.read(terminal, 4096)
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
    script = "echo $ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES"
    # ROCR selects first, and HIP numbers the selected GPUs from 0
    leased = start("lease", "--gpu-ids", "3,4", "--", "sh", "-c", script)
    assert leased.communicate(timeout=60) == ("3,4 0,1 0,1\n", "")


def test_requests_are_served_in_order_of_arrival(start: Start, who: Who) -> None:
    first = start_lease(start, "8", "--for", "1h")
    large = start("lease", "8", "--", "true")
    waits_for(lambda: len(who()["queue"]) == 1)
    small = start("lease", "1", "--now", "--", "true")
    assert small.wait(60) == 75
    last = start("lease", "1", "--", "true")
    waits_for(lambda: len(who()["queue"]) == 2)
    assert [request["count"] for request in who()["queue"]] == [8, 1]
    last.send_signal(signal.SIGINT)
    assert last.wait(60) == 130
    assert [request["count"] for request in who()["queue"]] == [8]
    first.terminate()
    first.wait(60)
    assert large.wait(60) == 0
    output = large.communicate()[1]
    assert "number 1 in the queue, expected to start in" in output


def test_a_suspended_client_in_the_queue_is_skipped(start: Start, who: Who) -> None:
    first = start_lease(start, "8")
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


def test_a_client_that_no_longer_asks_is_skipped(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a user could keep the others from all GPUs without a lease."""
    broker = Broker(share)
    _, first_lock = broker.ask(LeaseRequest(count=8))
    silent, silent_lock = broker.ask(LeaseRequest(count=8))
    waiting, lock = broker.ask(LeaseRequest())
    os.close(first_lock)
    assert broker.claim(waiting.lease.id).position == 2
    later = Clock().boot() + MAX_SILENCE_SECONDS
    monkeypatch.setattr(Clock, "boot", lambda _: later)
    assert broker.claim(waiting.lease.id).lease.held
    # it has kept its place
    behind, last_lock = broker.ask(LeaseRequest(count=8))
    assert broker.claim(silent.lease.id).position == 1
    assert broker.claim(behind.lease.id).position == 2
    for descriptor in (silent_lock, lock, last_lock):
        os.close(descriptor)
    broker.close()


def test_a_command_keeps_its_gpu_when_the_launcher_is_killed(
    start: Start, who: Who, usage: Usage
) -> None:
    leased = start_lease(start, "1", command="exec sleep 600")
    (command,) = list_children(leased.pid)
    leased.kill()
    leased.wait()
    try:
        assert list(holders(who())) == [0]
    finally:
        os.kill(command, signal.SIGKILL)
    waits_for(lambda: not holders(who()))
    assert usage()[0]["ended"] == "died"


def test_a_child_that_closed_all_files_keeps_the_gpu_too(start: Start, who: Who) -> None:
    """Python's subprocess closes inherited files, so such a child does not hold the lock."""
    program = (
        "import subprocess, sys, time; "
        "p = subprocess.Popen(['sleep', '600'], close_fds=True, start_new_session=True); "
        "print(p.pid, flush=True); p.wait()"
    )
    leased = start("lease", "1", "--", "python3", "-c", program)
    assert leased.stdout is not None
    child = int(leased.stdout.readline())
    python = list_children(leased.pid)[0]
    leased.kill()
    os.kill(python, signal.SIGKILL)
    leased.wait()
    try:
        assert list(holders(who())) == [0]
    finally:
        os.kill(child, signal.SIGKILL)
    waits_for(lambda: not holders(who()))


def test_background_processes_of_a_command_keep_the_gpu(start: Start, who: Who) -> None:
    """However soon the command ends, so try it several times."""
    pids = []
    try:
        for _ in range(5):
            leased = start("lease", "1", "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
            pids.append(int(leased.communicate(timeout=60)[0]))
            assert leased.returncode == 0
        assert list(holders(who())) == [0, 1, 2, 3, 4]
    finally:
        for pid in pids:
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
    leased = start_lease(
        start, "8", "--for", "6s", setup="trap '' TERM;", command="sleep 60 & wait; sleep 60"
    )
    all_pids = [leased.pid, *list_children(leased.pid)]
    for pid in all_pids:
        os.kill(pid, signal.SIGSTOP)
    pids = " ".join(map(str, all_pids[1:]))
    after = start(
        "lease",
        "8",
        "--",
        "sh",
        "-c",
        f"for pid in {pids}; do grep -s ^State: /proc/$pid/status | grep -v zombie; done; true",
    )
    output, _ = after.communicate(timeout=60)
    assert output == ""
    # the launcher is woken to be stopped, and may exit with its command's status before it is killed
    assert leased.wait(60) in (143, -signal.SIGTERM, -signal.SIGKILL)
    assert [lease["ended"] for lease in usage()] == ["time", "finished"]


def test_a_process_that_only_tests_a_lock_is_not_stopped_with_its_holder(
    share: Path, start: Start
) -> None:
    """Every client tests locks to see whether they are free."""
    leased = start_lease(start, "8", "--for", "4s", command="sleep 60")
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


def test_the_inode_of_a_pinned_lock_is_not_reused(tmp_path: Path) -> None:
    """The kernel reuses the inode of a removed file for the next one."""
    lock, strangers = tmp_path / "lock", []
    lock.touch()
    with processes.pin_lock(lock) as identity:
        lock.unlink()
        for number in range(50):
            (tmp_path / str(number)).touch()
            strangers.append((tmp_path / str(number)).stat())
    assert identity is not None
    assert identity not in {(status.st_dev, status.st_ino) for status in strangers}


def test_gpus_by_index_and_the_best_connected(share: Path, cli: Cli, start: Start) -> None:
    leased = start("lease", "--gpu-ids", "3,4", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert leased.communicate()[0] == "3,4\n"
    # in a hybrid cube mesh of V100s, two NVLinks connect 0 and 3, and one connects 0 and 1
    set_up(share, fake_gpus=8, topology="nvlink-hybrid-cube-mesh")
    best = start("lease", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert best.communicate()[0] == "0,3\n"


@pytest.mark.parametrize("topology", ["nvlink-pairs", "torus", "dual-root"])
def test_the_best_connected_of_sixteen_gpus_are_chosen(share: Path, topology: str) -> None:
    """They are as fast as those that `find_best_gpus` finds, whichever are free; the lowest indices are slower."""
    import random

    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.hardware import PRESETS, build_preset, estimate_all_reduce
    from gpuyard.hardware.rings import find_best_gpus
    from gpuyard.share.gpu_choice import choose_free_gpus
    from gpuyard.share.models import WHOLE

    config = set_up(share, fake_gpus=16, topology=topology)
    graph = build_preset(topology, catalog_gpus().get(PRESETS[topology].default_gpu), 16)
    chance = random.Random(3)
    for count in (2, 2, 4, 4):
        free = sorted(chance.sample(range(16), 9))
        chosen = choose_free_gpus(count, WHOLE, (), dict.fromkeys(free, WHOLE), config.rates)
        assert chosen is not None and set(chosen) <= set(free) and len(set(chosen)) == count
        result = estimate_all_reduce(graph, [graph.gpus[i] for i in chosen])
        best = find_best_gpus(graph, count, [graph.gpus[i] for i in free])
        assert result.bytes_per_second == best.bytes_per_second
    if topology == "nvlink-pairs":
        assert choose_free_gpus(2, WHOLE, (), dict.fromkeys(range(1, 16), WHOLE), config.rates) == (
            2,
            3,
        )


def test_small_jobs_share_a_gpu_and_never_more_than_all_of_it(start: Start, who: Who) -> None:
    half = start_lease(start, "1", "--share", "0.5")
    start_lease(start, "1", "--gpu-memory", "10GB")
    assert {gpu: len(ids) for gpu, ids in holders(who()).items()} == {0: 2}
    start_lease(start, "1", "--share", "0.5")
    assert {gpu: len(ids) for gpu, ids in holders(who()).items()} == {0: 2, 1: 1}
    whole = start("lease", "--gpu-ids", "0", "--now", "--", "true")
    assert whole.wait(60) == 75
    half.terminate()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("9", "--", "true"), "9 GPUs were requested; this machine has 8"),
        (("--gpu-ids", "8", "--", "true"), "GPU 8"),
        (("--gpu-ids", "one", "--", "true"), "expected GPUs by index like 3,4, got 'one'"),
        (("1", "--share", "1.5", "--", "true"), "must be between"),
        (("1", "--gpu-memory", "80GB", "--", "true"), "no GPU has that much memory"),
        (("1", "--now", "--wait", "1s", "--", "true"), "use either --now or --wait"),
        (("1", "--for", "2", "--", "true"), "has no unit; write a duration like '2h'"),
        (("1", "--gpu-memory", "12", "--", "true"), "has no unit; write a size like '12GB'"),
        (("1",), "gpuyard lease 2 -- python train.py"),
        (("0", "--", "true"), "1 GPU or more"),
        (("1", "--for", "0s", "--", "true"), "more than 0 seconds"),
        (("1", "--", ""), "name of the program"),
    ],
)
def test_mistakes_are_reported(
    share: Path, cli: Cli, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in " ".join(cli("lease", *arguments, status=2).stderr.split())


def test_the_database_refuses_two_holders_of_one_gpu(share: Path, start: Start) -> None:
    start_lease(start, "--gpu-ids", "2")
    store = sqlite3.connect(share / "leases.sqlite")
    (number,) = store.execute("SELECT lease FROM holds").fetchone()
    for parts in (1_000_000, 1):
        with pytest.raises(sqlite3.IntegrityError, match=r"already held|UNIQUE"):
            store.execute("INSERT INTO holds VALUES (?, 2, ?)", (number + 1, parts))
    store.execute("INSERT INTO holds VALUES (?, 3, 600000)", (number,))
    with pytest.raises(sqlite3.IntegrityError, match="already held"):
        store.execute("INSERT INTO holds VALUES (?, 3, 600000)", (number + 1,))
    with pytest.raises(sqlite3.IntegrityError, match=r"already held|UNIQUE"):
        store.execute("UPDATE holds SET gpu = 2 WHERE gpu = 3")
    store.close()


def test_release_stops_the_processes_first(start: Start, who: Who, cli: Cli, usage: Usage) -> None:
    leased = start_lease(start, "2")
    (id_,) = {id_ for ids in holders(who()).values() for id_ in ids}
    assert f"{id_} of {user()}: GPU 0, 1." in cli("release", id_).stderr
    assert leased.wait(60) != 0
    assert holders(who()) == {}
    assert usage()[0]["ended"] == "released"
    assert id_ in cli("release", id_, status=2).stderr


def test_a_lease_can_be_released_from_inside(start: Start, who: Who, usage: Usage) -> None:
    command = f"{sys.executable} -m gpuyard release $GPUYARD_LEASE; exec sleep 60"
    leased = start_lease(start, "2", command=command)
    error_output = leased.communicate(timeout=30)[1]
    assert "GPU 0, 1." in error_output
    assert leased.returncode == 143
    assert (holders(who()), usage()[0]["ended"]) == ({}, "released")


def start_lease(
    start: Start, *arguments: str, setup: str = "", command: str = "exec sleep 60"
) -> Any:
    """Start a lease, and wait until its command runs and has done its setup."""
    leased = start("lease", *arguments, "--", "sh", "-c", f"{setup} echo started; {command}")
    assert leased.stdout is not None
    assert leased.stdout.readline() == "started\n", leased.communicate()
    return leased


def waits_for(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def list_children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def is_stopped(pid: int) -> bool:
    from gpuyard.share.processes import is_stopped as stopped

    return stopped(pid)


def user() -> str:
    from gpuyard.share.caller import this_process

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


def test_arguments_that_are_not_utf_8_are_passed_unchanged(
    share: Path, start: Start, usage: Usage
) -> None:
    latin = "donn\udce9es"  # as Python has a byte that is none of UTF-8's
    command = ("--project", latin, "--", "printf", "%s", latin)
    leased = start("lease", "1", *command, errors="surrogateescape")
    assert leased.communicate(timeout=30) == (latin, "")
    (lease,) = usage()
    assert lease["project"] == "donn?es" and lease["command"] == "printf %s 'donn?es'"


def test_the_plain_parser_knows_every_option_of_the_command() -> None:
    import typer

    from gpuyard.cli.app import app
    from gpuyard.cli.share.lease_command import LeaseOptions, parse_plain

    root: Any = typer.main.get_command(app)
    command = root.get_command(typer.Context(root), "lease")
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "wide"]
    assert len(options) == len(fields(LeaseOptions))
    for option in options:
        words = [option.opts[0]] if option.is_flag else [option.opts[0], "x"]
        values: dict[str, Any] = {option.name: True if option.is_flag else "x"}
        expected = LeaseOptions(**values)
        assert parse_plain(words) == ([], expected)
        assert expected != LeaseOptions()
    assert parse_plain(["2", "--for=2h", "--gpu-ids", "1,2", "--now", "--", "a", "--now"]) == (
        ["2", "a", "--now"],
        LeaseOptions(for_="2h", gpu_ids="1,2", now=True),
    )
    for words in (["--help"], ["--fro", "2h"], ["--for"], ["1", "x"], ["-h"], ["--now=1"]):
        assert parse_plain(words) is None


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


def test_a_client_of_the_service_imports_no_store() -> None:
    program = (
        "import sys, gpuyard.api.lease, gpuyard.share.wire\n"
        "print([name for name in ('sqlite3', 'gpuyard.share.broker') if name in sys.modules])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
