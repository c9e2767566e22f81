"""No environment makes a command print a traceback: odd homes, closed streams, vanished directories, unknown users."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_process import LONG, SHORT
from tests.conftest import ROOT
from tests.other_users import public_gpuyard
from tests.share.conftest import needs_root

# the shell's redirections, variables, and (as root) the user
ENVIRONMENTS: dict[str, tuple[str, dict[str, str], int | None]] = {
    "another user's home": ("", {"HOME": "/root"}, 65534),
    "a device as home": ("", {"HOME": "/dev/null"}, None),
    "an unknown user's home": ("", {"HOME": "~nosuchuser"}, None),
    "an unknown user": ("", {}, 12345),
    "an empty home": ("", {"HOME": ""}, None),
    "a relative home": ("", {"HOME": "a/b"}, None),
    "an unknown user's gpuyard home": ("", {"GPUYARD_HOME": "~nosuchuser/x"}, None),
    "a device as gpuyard home": ("", {"GPUYARD_HOME": "/dev/null"}, None),
    "an unknown user's share": ("", {"GPUYARD_SHARE_DIR": "~nosuchuser/x"}, None),
    "a read-only data home": ("", {"XDG_DATA_HOME": "/proc"}, None),
    "no temporary directory": ("", {"TMPDIR": "/nonexistent"}, None),
    "no stdout": (">&-", {}, None),
    "no stderr": ("2>&-", {}, None),
    "no stdin": ("<&-", {}, None),
    "no streams": ("<&- >&- 2>&-", {}, None),
    "no current directory": ("gone", {}, None),
}
SAMPLE = {
    "another user's home": "results list",
    "an unknown user's home": "predict resnet50 --on dgx-a100 --json",
    "an unknown user": "queue",
    "a device as gpuyard home": "who",
    "no stdout": "catalog gpus t4",
    "no streams": "prices",
    "no current directory": "submit --dry-run",
}


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory that every user can read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run(line: str, environment: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    redirections, variables, user = ENVIRONMENTS[environment]
    words = (public_gpuyard().python, "-P", "-m", "gpuyard", *shlex.split(line))
    command = f"exec {shlex.join(words)} {redirections if redirections != 'gone' else ''}"
    if redirections == "gone":
        command = f"d=$(mktemp -d) && cd $d && rmdir $d && {command}"
    clean = {"PATH": os.environ["PATH"], "HOME": str(directory), **public_gpuyard().environment}
    user = user if os.geteuid() == 0 else None
    return subprocess.run(
        ("sh", "-c", command),
        cwd=directory if user else ROOT,
        env={**clean, **variables},
        user=user,
        group=user,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def check(line: str, environment: str, directory: Path) -> None:
    done = run(line, environment, directory)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 2, 75), done


@pytest.mark.parametrize("environment", SAMPLE)
def test_an_odd_environment_gives_an_answer_or_an_error_message(
    environment: str, directory: Path
) -> None:
    check(SAMPLE[environment], environment, directory)


@needs_root
def test_an_unreadable_home_is_named_with_the_variable_to_set(directory: Path) -> None:
    done = run("results list", "another user's home", directory)
    assert done.returncode == 1
    assert "/root/" in done.stderr and "GPUYARD_HOME" in done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_command_prints_a_traceback_in_any_environment(
    environment: str, directory: Path
) -> None:
    failed = []
    for line in SHORT + LONG:
        try:
            check(line, environment, directory)
        except AssertionError as error:
            failed.append(f"{line}: {str(error)[-700:]}")
    assert not failed, "\n\n".join(failed)
