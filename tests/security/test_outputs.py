"""Where answers go: a full disk, a terminal of few characters, whose files they are."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.files import replacing, write_text
from tests.conftest import Cli

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuyard", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "line",
    ["catalog gpus", "catalog gpus --json", "schema plan", "--version", "topo --preset nvswitch",
     "cost --rent $1/h --buy $9000"],
)  # fmt: skip
def test_an_answer_that_does_not_fit_is_a_sentence(line: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard", *line.split()],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.stderr == "gpuyard: the answer can't be written: No space left on device\n"
    assert done.returncode == 1


def test_a_file_on_a_full_disk_is_a_sentence() -> None:
    done = run("cost", "--rent", "$1/h", "--buy", "$9000", "--html", "/dev/full")
    assert "gpuyard: /dev/full can't be written: No space left on device" in done.stderr
    assert done.returncode == 1


def test_a_terminal_of_few_characters_gets_an_answer_all_the_same() -> None:
    done = run("catalog", "links", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "ethernet-10g" in done.stdout


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o027, 0o640), (0o022, 0o644)])
def test_a_new_file_has_the_rights_that_the_umask_leaves(
    mask: int, mode: int, umask: Callable[[int], int], tmp_path: Path, cli: Cli
) -> None:
    umask(mask)
    page, checkpoint = tmp_path / "page.html", tmp_path / "c.npz"
    cli("cost", "--rent", "$1/h", "--buy", "$9000", "--html", str(page))
    with replacing(checkpoint) as file:
        file.write(b"weights")
    assert [stat.S_IMODE(p.stat().st_mode) for p in (page, checkpoint)] == [mode, mode]


def test_a_file_that_is_replaced_keeps_its_rights(
    umask: Callable[[int], int], tmp_path: Path
) -> None:
    umask(0o022)
    path = tmp_path / "private.txt"
    path.write_text("one")
    path.chmod(0o600)
    with replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600  # also before it is whole
        file.write(b"two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "two"


def test_a_labs_state_is_its_makers_whatever_the_umask(
    umask: Callable[[int], int], tmp_path: Path
) -> None:
    umask(0o002)  # of users with a group of their own
    path = tmp_path / "lab.json"
    write_text(path, "{}", mode=0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
