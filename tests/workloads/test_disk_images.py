"""Datasets of images from a folder and from an archive."""

import io
import shutil
import tarfile
from pathlib import Path

import pytest
import torch

from gpuyard.errors import UserMistake
from gpuyard.specs import Dataset, Tensor, TrainingTarget, Workload
from gpuyard.workloads.disk_images import find_images, is_on_disk
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.samples import build_batches

Image = pytest.importorskip("PIL.Image")


def create_png(color: tuple[int, int, int]) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (6, 4), color).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, color in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        directory = tmp_path / "images" / label
        directory.mkdir(parents=True)
        for index in range(3):
            (directory / f"{index}.png").write_bytes(create_png(color))
        (directory / "notes.txt").write_text("no image")
    return tmp_path / "images"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "train-0.tar"
    with tarfile.open(path, "w") as tar:
        for index, color in enumerate([(255, 0, 0), (0, 255, 0)]):
            for suffix, content in (("png", create_png(color)), ("cls", str(7 + index).encode())):
                member = tarfile.TarInfo(f"a/{index:03d}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def test_a_folder_has_a_class_for_each_directory(folder: Path) -> None:
    images = find_images(str(folder), (3, 8, 8))
    assert len(images) == 6
    red, label = images[0]
    assert (tuple(red.shape), label) == ((3, 8, 8), 0)
    assert red[:, 0, 0].tolist() == [1, 0, 0]
    blue, label = images[5]
    assert (blue[:, 3, 3].tolist(), label) == ([0, 0, 1], 1)


def test_an_archive_pairs_images_and_classes(archive: Path) -> None:
    images = find_images(str(archive), (3, 4, 6))
    assert [(image[:, 0, 0].tolist(), label) for image, label in (images[0], images[1])] == [
        ([1, 0, 0], 7),
        ([0, 1, 0], 8),
    ]
    assert len(find_images(str(archive.parent), (1, 4, 6))) == 2


def test_a_workload_trains_on_images_from_a_folder(folder: Path) -> None:
    workload = Workload(
        name="w",
        model="tests.workloads.test_disk_images:model",
        input=Tensor(shape=(3, 8, 8)),
        target=TrainingTarget(classes=2),
        dataset=Dataset(samples=6, source=str(folder)),
    )
    inputs, target = next(build_batches(workload, build_task(workload), batch=4))
    assert inputs[0].shape == (4, 3, 8, 8)
    assert target.dtype == torch.int64
    (folder / "owl").mkdir()
    shutil.copy(folder / "dog" / "0.png", folder / "owl")
    with pytest.raises(UserMistake, match=r"classes 0 to 2"):
        next(build_batches(workload, build_task(workload), batch=4))


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))


def test_errors_name_the_problem(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="neither a directory nor a file"):
        find_images("./nothing", (3, 8, 8))
    with pytest.raises(UserMistake, match=r"expected \[3, height, width\]"):
        find_images(str(folder), (12_000,))
    (tmp_path / "broken.tar").write_bytes(b"no archive at all")
    with pytest.raises(UserMistake, match="is not a webdataset archive"):
        find_images(str(tmp_path / "broken.tar"), (3, 8, 8))
    with pytest.raises(UserMistake, match="neither a directory of images for each class"):
        find_images(str(folder / "cat"), (3, 8, 8))


def test_paths_are_distinguished_from_names() -> None:
    assert is_on_disk("./images")
    assert is_on_disk("train.tar")
    assert not is_on_disk("my_data:train")
    assert not is_on_disk("spoken-digits")
