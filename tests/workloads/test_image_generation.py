"""Generated images of ImageNet's size: created once, completed after an interruption, and read by workloads."""

import json
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.specs import Dataset, Workload
from gpuyard.workloads.disk_images import UndecodedImages, find_images
from gpuyard.workloads.image_generation import generate_images
from gpuyard.workloads.samples import build_batches, load_undecoded
from gpuyard.workloads.synthetic import synthetic_task
from tests.conftest import Cli

pytest.importorskip("PIL.Image")
COUNT = 260  # more than fit into one archive


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shared") / "images"
    progress: list[float] = []
    result = generate_images(directory, COUNT, progress.append)
    assert (result.images, result.created, progress) == (COUNT, COUNT, [0.5, 1.0])
    assert result.size_bytes / COUNT == pytest.approx(117_000, rel=0.02)  # with tar's headers
    return directory


def test_the_images_can_be_decoded(images: Path) -> None:
    dataset = find_images(str(images), (3, 224, 224))
    assert (len(dataset), dataset.classes) == (COUNT, COUNT)
    first, last = dataset[0], dataset[COUNT - 1]
    assert first[0].shape == (3, 224, 224)
    assert (first[1], last[1]) == (0, COUNT - 1)
    assert not (first[0] == last[0]).all()


def test_only_missing_archives_are_created_with_the_same_content(images: Path) -> None:
    archive = images / "00001.tar"
    before, other = archive.read_bytes(), (images / "00000.tar").stat().st_mtime_ns
    archive.unlink()
    result = generate_images(images, COUNT, lambda _: None)
    assert (result.images, result.created) == (COUNT, 4)
    assert archive.read_bytes() == before
    assert (images / "00000.tar").stat().st_mtime_ns == other


def test_files_of_others_are_not_replaced(images: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "00000.tar"
    theirs.write_bytes((images / "00001.tar").read_bytes())
    with pytest.raises(UserMistake, match="gpuyard data make"):
        generate_images(tmp_path, COUNT, lambda _: None)
    assert theirs.read_bytes() == (images / "00001.tar").read_bytes()


def test_a_synthetic_gpu_reads_every_byte_without_decoding(images: Path) -> None:
    workload = Workload(
        name="w", model="spoken-digits-linear", dataset=Dataset(samples=9, source=str(images))
    )
    task = synthetic_task(workload, lambda _: 0.0)
    samples = load_undecoded(workload, task)
    assert samples.count == COUNT
    assert "read, not decoded" in samples.data_source
    inputs, _ = next(build_batches(workload, task, batch=5, samples=samples))
    assert inputs[0].shape == (5, 1)
    elsewhere = workload.model_copy(update={"dataset": Dataset(samples=9, source="/not/here")})
    assert "reads nothing" in load_undecoded(elsewhere, task).data_source


def test_a_truncated_archive_is_detected(images: Path, tmp_path: Path) -> None:
    archive = tmp_path / "cut.tar"
    archive.write_bytes((images / "00001.tar").read_bytes())
    dataset = UndecodedImages(str(archive))
    dataset[3]
    with archive.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(GpuyardError, match="truncated"):
        dataset[3]


def test_a_command_creates_images(cli: Cli, tmp_path: Path) -> None:
    document = json.loads(
        cli("data", "make", str(tmp_path / "x"), "--images", "2", "--json").stdout
    )
    assert (document["images"], document["created"]) == (2, 2)
    again = cli("data", "make", str(tmp_path / "x"), "--images", "2", "--json").stdout
    assert (json.loads(again)["images"], json.loads(again)["created"]) == (2, 0)
    assert "expected 1 to" in cli("data", "make", str(tmp_path), "--images", "0", status=2).stderr
    refused = cli("data", "make", str(tmp_path / "a/b"), status=2).stderr
    assert f"{tmp_path / 'a'} not found" in refused
