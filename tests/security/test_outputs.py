"""Commands handle full disks and limited terminals, and create files with the right permissions and owner."""

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
from gpuyard.files import replace_file, write_text
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
def test_a_full_disk_behind_stdout_is_reported(line: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard", *line.split()],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.stderr.startswith("gpuyard: ")
    assert done.stderr.endswith("No space left on device\n")
    assert done.stderr.count("\n") == 1
    assert done.returncode == 1


def test_a_full_disk_behind_a_file_is_reported() -> None:
    done = run("cost", "--rent", "$1/h", "--buy", "$9000", "--html", "/dev/full")
    assert "/dev/full" in done.stderr and "No space left on device" in done.stderr
    assert done.returncode == 1


def test_an_ascii_terminal_gets_output() -> None:
    done = run("catalog", "links", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "ethernet-10g" in done.stdout


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o027, 0o640), (0o022, 0o644)])
def test_a_new_file_has_the_permissions_of_the_umask(
    mask: int, mode: int, umask: Callable[[int], int], tmp_path: Path, cli: Cli
) -> None:
    umask(mask)
    page, checkpoint = tmp_path / "page.html", tmp_path / "c.npz"
    cli("cost", "--rent", "$1/h", "--buy", "$9000", "--html", str(page))
    with replace_file(checkpoint) as file:
        file.write(b"weights")
    assert [stat.S_IMODE(p.stat().st_mode) for p in (page, checkpoint)] == [mode, mode]


def test_a_replaced_file_keeps_its_permissions(umask: Callable[[int], int], tmp_path: Path) -> None:
    umask(0o022)
    path = tmp_path / "private.txt"
    path.write_text("one")
    path.chmod(0o600)
    with replace_file(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600  # also before it is complete
        file.write(b"two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "two"


def test_a_labs_state_is_writable_only_by_its_owner(
    umask: Callable[[int], int], tmp_path: Path
) -> None:
    umask(0o002)  # common for users with a private group
    path = tmp_path / "lab.json"
    write_text(path, "{}", mode=0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["report.html", "study.json"])
@pytest.mark.parametrize("content", ["", "<html><body>My thesis</body></html>", '{"mine": 1}'])
def test_a_study_overwrites_only_files_of_a_study(
    name: str, content: str, cli: Cli, tmp_path: Path
) -> None:
    spec = tmp_path / "a.study.yaml"
    spec.write_text(
        "name: A\nmeasure: null\nworkloads: [resnet18]\nclusters: [{cluster: dgx-a100, gpus: [8]}]\n"
    )
    out = tmp_path / "out"
    cli("study", str(spec), "--output-dir", str(out))
    cli("study", str(spec), "--output-dir", str(out))  # its own files are replaced
    (out / name).write_text(content)
    before = {path: path.read_bytes() for path in out.iterdir()}
    error = cli("study", str(spec), "--output-dir", str(out), status=2).stderr
    assert name in error
    assert "--output" in error
    assert {path: path.read_bytes() for path in out.iterdir()} == before


EVERY_CHARACTER = "".join(map(chr, [*range(0x20), 0x7F, 0x85, 0x202E, 0xD800, 0xFFFE, 0xFFFF]))


def test_a_control_character_never_breaks_a_picture() -> None:
    name = f"a{EVERY_CHARACTER}<\"&'>z"
    drawn = markup.element(
        "svg", markup.text(name, 1, 2) + markup.text_element("title", name, id=name, data_name=name)
    )
    assert "z" in "".join(ElementTree.fromstring(drawn.encode()).itertext())  # noqa: S314


def test_a_file_name_with_control_characters_gives_a_valid_picture(
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
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize(
    "command",
    [
        "train",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("sweep", "study", "storage")),
    ],
)
def test_a_measurement_is_printed_if_the_disk_is_full(
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
            pytest.skip("this machine cannot mount a disk")
        assert done.returncode == 1, done.stderr
        assert "results.sqlite" in done.stderr and "full" in done.stderr
        assert "Traceback" not in done.stderr
        if not json_output:
            assert "resnet18" in done.stdout or "spoken-digits-linear" in done.stdout
            continue
        document = json.loads(done.stdout)
        if command in ("sweep", "study"):
            document = document["measurements"]
        (point,) = document if isinstance(document, list) else [document]
        assert point["id"]
        assert point["kind"] in ("train", "storage", "rejected")
