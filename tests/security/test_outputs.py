"""Where answers go: a full disk, a terminal of few characters, whose files they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
