"""Where answers go: a full disk, a terminal of few characters, whose files they are."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuyard.draw import markup
from gpuyard.files import replacing, write_text
from tests.conftest import MACHINE, Cli

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


@pytest.mark.parametrize("name", ["report.html", "study.json"])
@pytest.mark.parametrize("content", ["", "<html><body>My thesis</body></html>", '{"mine": 1}'])
def test_a_study_overwrites_nothing_that_is_not_a_studys(
    name: str, content: str, cli: Cli, tmp_path: Path
) -> None:
    spec = tmp_path / "a.study.yaml"
    spec.write_text(
        "name: A\nmeasure: null\nworkloads: [resnet18]\nclusters: [{cluster: dgx-a100, gpus: [8]}]\n"
    )
    out = tmp_path / "out"
    cli("study", str(spec), "--output", str(out))
    cli("study", str(spec), "--output", str(out))  # its own are replaced
    (out / name).write_text(content)
    before = {path: path.read_bytes() for path in out.iterdir()}
    refused = cli("study", str(spec), "--output", str(out), status=2).stderr
    assert f"{name} was not written by a study, so it is not overwritten" in refused
    assert "another directory with --output" in refused
    assert {path: path.read_bytes() for path in out.iterdir()} == before


EVERY_CHARACTER = "".join(map(chr, [*range(0x20), 0x7F, 0x85, 0x202E, 0xD800, 0xFFFE, 0xFFFF]))


def test_a_control_character_never_breaks_a_picture() -> None:
    name = f"a{EVERY_CHARACTER}<\"&'>z"
    drawn = markup.element(
        "svg", markup.text(name, 1, 2) + markup.words("title", name, id=name, data_name=name)
    )
    assert "z" in "".join(ElementTree.fromstring(drawn.encode()).itertext())  # noqa: S314


def test_the_picture_of_a_file_with_control_characters_in_its_name_can_be_read(
    cli: Cli, tmp_path: Path
) -> None:
    file, picture = tmp_path / "a\x1b]0;x\x07.txt", tmp_path / "topo.svg"
    file.write_text("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n")
    cli("topo", "--from", str(file), "--gpu", "t4", "--svg", str(picture))
    assert "]0;x" in picture.read_text()
    ElementTree.parse(picture)  # noqa: S314


FULL_DISK = """
mount -t tmpfs -o size=64k none "$GPUYARD_HOME" || exit 77
head -c 60000 /dev/zero > "$GPUYARD_HOME/full" 2>/dev/null
exec "$@"
"""


@MACHINE
@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted by root only")
@pytest.mark.parametrize(
    "command",
    [
        "train",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("sweep", "study", "storage")),
    ],
)
def test_a_measurement_that_a_full_disk_did_not_take_is_printed(
    command: str, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    (tmp_path / "a.study.yaml").write_text(
        "name: A\nworkloads: [spoken-digits-linear]\n"
        "measure: {workers: [1], batch: [4], time_per_point: 100 ms}\n"
    )
    (tmp_path / "a.sweep.yaml").write_text(
        "name: A\nworkloads: [spoken-digits-linear]\nnodes: [1]\nbatch: [4]\ntime_per_point: 100 ms\n"
        "attempts: 1\n"
    )
    lines = {
        "train": "bench train spoken-digits-linear --workers 1 --batch 4 --time-per-point 100ms",
        "sweep": "bench sweep a.sweep.yaml",
        "study": "study a.study.yaml",
        "storage": f"bench storage {tmp_path} --model resnet18 --gpus 1 --size 16MB --time-per-point 100ms",
    }
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "GPUYARD_LOCK_DIRECTORY": str(tmp_path),
    }  # fmt: skip
    for json_output in ([], ["--json"]):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", FULL_DISK, "sh", sys.executable, "-m", "gpuyard",
             *lines[command].split(), *json_output],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 77:
            pytest.skip("no disk can be mounted here")
        assert done.returncode == 1, done.stderr
        assert "what was measured is shown, and kept nowhere" in done.stderr
        assert "Traceback" not in done.stderr
        if not json_output:
            assert "resnet18" in done.stdout or "spoken-digits-linear" in done.stdout
            continue
        said = json.loads(done.stdout)
        if command in ("sweep", "study"):
            said = said["measurements"]
        (point,) = said if isinstance(said, list) else [said]
        assert point["id"]
        assert point["kind"] in ("train", "storage", "rejected")
