"""Images of ImageNet's size: made once, gone on with after a kill, and read by GPUs real and synthetic."""

import json
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.specs import Dataset, Workload
from gpuyard.workloads.disk_images import UndecodedImages, find_images
from gpuyard.workloads.made_images import make_images
from gpuyard.workloads.samples import build_batches, load_undecoded
from gpuyard.workloads.synthetic import synthetic_task
from tests.conftest import Cli

pytest.importorskip("PIL.Image")
MANY = 260  # more than one archive has


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shared") / "images"
    told: list[float] = []
    found = make_images(directory, MANY, told.append)
    assert (found.images, found.made, told) == (MANY, MANY, [0.5, 1.0])
    assert found.size_bytes / MANY == pytest.approx(117_000, rel=0.02)  # with tar's headers
    return directory


def test_real_gpus_can_decode_them(made: Path) -> None:
    images = find_images(str(made), (3, 224, 224))
    assert (len(images), images.classes) == (MANY, MANY)
    first, last = images[0], images[MANY - 1]
    assert first[0].shape == (3, 224, 224)
    assert (first[1], last[1]) == (0, MANY - 1)
    assert not (first[0] == last[0]).all()


def test_what_is_there_stays_and_what_is_missing_is_made_as_it_was(made: Path) -> None:
    archive = made / "00001.tar"
    before, other = archive.read_bytes(), (made / "00000.tar").stat().st_mtime_ns
    archive.unlink()
    found = make_images(made, MANY, lambda _: None)
    assert (found.images, found.made) == (MANY, 4)
    assert archive.read_bytes() == before
    assert (made / "00000.tar").stat().st_mtime_ns == other


def test_nothing_that_somebody_else_has_put_there_is_replaced(made: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "00000.tar"
    theirs.write_bytes((made / "00001.tar").read_bytes())  # fewer images than would be made
    with pytest.raises(UserMistake, match="has not made"):
        make_images(tmp_path, MANY, lambda _: None)
    assert theirs.read_bytes() == (made / "00001.tar").read_bytes()


def test_a_synthetic_gpu_reads_every_byte_and_looks_at_none(made: Path) -> None:
    workload = Workload(
        name="w", model="spoken-digits-linear", dataset=Dataset(samples=9, source=str(made))
    )
    task = synthetic_task(workload, lambda _: 0.0)
    samples = load_undecoded(workload, task)
    assert samples.count == MANY
    assert "read, not decoded" in samples.data_source
    inputs, _ = next(build_batches(workload, task, batch=5, samples=samples))
    assert inputs[0].shape == (5, 1)
    elsewhere = workload.model_copy(update={"dataset": Dataset(samples=9, source="/not/here")})
    assert "reads nothing" in load_undecoded(elsewhere, task).data_source


def test_an_archive_that_was_cut_off_is_noticed(made: Path, tmp_path: Path) -> None:
    archive = tmp_path / "cut.tar"
    archive.write_bytes((made / "00001.tar").read_bytes())
    images = UndecodedImages(str(archive))
    images[3]
    with archive.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(GpuyardError, match="was cut off"):
        images[3]


def test_a_command_makes_them(cli: Cli, tmp_path: Path) -> None:
    said = json.loads(cli("data", "make", str(tmp_path / "x"), "--images", "2", "--json").stdout)
    assert (said["images"], said["made"]) == (2, 2)
    assert "all were there" in cli("data", "make", str(tmp_path / "x"), "--images", "2").stdout
    assert "expected 1 to" in cli("data", "make", str(tmp_path), "--images", "0", status=2).stderr
    assert "no directory" in cli("data", "make", str(tmp_path / "a/b"), status=2).stderr
