"""`gpuyard deploy run` over a real ssh: two machines run the command, and stop with it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuyard.deploy.run.through_slurm import run_through_slurm
from gpuyard.errors import GpuyardError
from gpuyard.run.attached import find_interface
from gpuyard.run.process import Command
from tests.conftest import Cli
from tests.deploy.conftest import Up

WRITE = 'echo "hello $NODE_RANK of $NNODES"; mkdir -p out; echo $NODE_RANK > out/$NODE_RANK'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print()\n")
    (folder / "notes.txt").write_text("1\n")
    return folder


def test_every_machine_runs_the_command_on_the_copied_folder_and_its_files_come_back(
    cli: Cli, up: Up, project: Path
) -> None:
    run = ("deploy", "run", up.file)
    planned = json.loads(
        cli(*run, "--dry-run", "--json", "--", "torchrun", "train.py", cwd=project).stdout
    )
    assert planned["launcher"] == "ssh"
    assert [each["machine"] for each in planned["commands"]] == ["localhost", "two"]
    assert "--nnodes=2 --nproc-per-node=2" in planned["commands"][1]["command"]
    assert "--local-addr=127.0.0.2" in planned["commands"][1]["command"]
    assert {each["file"] for each in planned["copied"]} == {"train.py", "notes.txt"}
    assert not (up.shared / "project").exists()

    done = cli(*run, "--", "sh", "-c", WRITE, cwd=project)
    assert {"localhost: hello 0 of 2", "two: hello 1 of 2"} <= set(done.stdout.splitlines())
    assert (project / "out" / "1").read_text() == "1\n"

    change = "echo mine > notes.txt; echo 2 > out/0; pwd"
    (project / "out" / "0").write_text("changed here\n")
    slow = f"cp notes.txt out/copy; {change}"
    arguments = ("--nodes", "1", "--exclude", "out", "--json", "--", "sh", "-c", slow)
    output = json.loads(cli(*run, *arguments, cwd=project).stdout)
    assert output["exit_status"] == 0
    assert [each["file"] for each in output["fetched"]] == ["notes.txt"]
    assert (project / "notes.txt").read_text() == "mine\n"
    assert (project / "out" / "0").read_text() == "changed here\n"
    assert not (project / "out" / "copy").exists()


def test_the_machines_do_not_get_the_paths_of_this_one(cli: Cli, up: Up, project: Path) -> None:
    show = ("--nodes", "1", "--no-fetch", "--", "sh", "-c", "echo home ${GPUYARD_HOME-unset}")
    assert os.environ["GPUYARD_HOME"]
    assert "home unset" in cli("deploy", "run", up.file, *show, cwd=project).stdout


def test_a_file_that_changed_here_during_the_run_is_kept(cli: Cli, up: Up, project: Path) -> None:
    change = f"echo theirs > notes.txt; echo 'my own' > {project}/notes.txt"
    run = ("deploy", "run", up.file, "--nodes", "1", "--json", "--", "sh", "-c", change)
    output = json.loads(cli(*run, cwd=project).stdout)
    assert output["kept"] == ["notes.txt"]
    assert (project / "notes.txt").read_text() == "my own\n"


def test_the_exit_status_is_that_of_the_machine_that_failed(
    cli: Cli, up: Up, project: Path
) -> None:
    run = ("deploy", "run", up.file, "--no-fetch", "--env", "STATUS=7")
    fail = "test $NODE_RANK = 0 || exit $STATUS; sleep 1000"
    assert "status 7" in cli(*run, "--", "sh", "-c", fail, status=7, cwd=project).stderr
    done = cli(*run, "--", "no-such-program", status=127, cwd=project)
    assert "cannot start no-such-program" in done.stdout


def test_mistakes_are_found_before_anything_is_copied(cli: Cli, up: Up, project: Path) -> None:
    run = ("deploy", "run", up.file)
    assert "after --" in cli(*run, status=2, cwd=project).stderr
    assert "1 to 2" in cli(*run, "--nodes", "3", "--", "true", status=2, cwd=project).stderr
    assert "NAME=VALUE" in cli(*run, "--env", "A", "--", "true", status=2, cwd=project).stderr
    text = Path(up.file).read_text()
    Path(up.file).write_text(f"{text}workers: [base, shared-storage]\n")
    assert "two has no role training" in cli(*run, "--", "true", status=2, cwd=project).stderr
    assert not (up.shared / project.name).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_command_stops_on_every_machine_with_gpuyard(
    up: Up, project: Path, number: signal.Signals
) -> None:
    wait = "echo $$ > pid.$NODE_RANK; sleep 1000"
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "run", up.file, "--", "sh", "-c", wait),
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    files = [up.shared / project.name / f"pid.{node}" for node in (0, 1)]
    try:
        _wait_for(lambda: all(file.exists() and file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert all(psutil.pid_exists(pid) for pid in pids)
        os.kill(process.pid, number)
        _wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))
        assert process.wait(timeout=60) == (130 if number == signal.SIGINT else -number)
    finally:
        process.kill()
        process.communicate()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@dataclass(frozen=True)
class Head:
    """A stand-in for a plan whose head has Slurm: gpuyard there answers with this status."""

    status: dict[str, Any]
    name: str = "head"

    @property
    def head(self) -> "Head":
        return self

    def submit_words(self) -> tuple[str, ...]:
        return ("gpuyard", "submit")

    def over_ssh(self, _node: int, words: tuple[str, ...]) -> Command:
        answers = {"submit": {"handle": "slurm://c/1", "caveats": []}, "status": self.status}
        printed = json.dumps(answers[words[1]]) if words[1] in answers else "a line"
        return Command("head", (sys.executable, "-c", f"print({printed!r})"))


@pytest.mark.parametrize(
    ("state", "recorded", "expected"),
    [
        ("succeeded", 0, 0),
        ("succeeded", None, 0),
        ("failed", 7, 7),
        ("failed", None, 1),
        ("failed", 0, 1),
    ],
)
def test_a_slurm_job_that_failed_never_counts_as_a_success(
    state: str, recorded: int | None, expected: int
) -> None:
    plan: Any = Head({"state": state, "exit_status": recorded, "reason": ""})
    assert run_through_slurm(plan, lambda _: None) == expected


@pytest.mark.parametrize("state", ["cancelled", "lost", "unknown", "running"])
def test_a_slurm_job_without_an_end_of_its_own_is_an_error(state: str) -> None:
    plan: Any = Head({"state": state, "exit_status": None, "reason": "node failure"})
    with pytest.raises(GpuyardError, match=rf"slurm://c/1 is {state}: node failure"):
        run_through_slurm(plan, lambda _: None)


def test_the_interface_of_an_address_is_found() -> None:
    assert find_interface("localhost") == "lo"
    assert find_interface("192.0.2.1") is None
    assert find_interface("no such host") is None
