"""Labelled images on a disk: a folder with a directory for each class, or a webdataset archive.

They are read and decoded when a batch is asked for, so that reading is part of what is measured.
"""

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake

if TYPE_CHECKING:
    import torch

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


@dataclass(frozen=True)
class StoredImage:
    """Where one image's bytes are, and its class."""

    file: Path
    offset: int
    size: int
    label: int

    def read(self) -> bytes:
        try:
            with self.file.open("rb") as file:
                file.seek(self.offset)
                return file.read(self.size)
        except OSError as error:
            raise unreadable(self.file, error) from error


def unreadable(file: Path, error: OSError) -> GpuyardError:
    return GpuyardError(f"{file} has an image that can't be read: {error}")


class UndecodedImages:
    """For a GPU that computes nothing: every image is read, and none is looked at."""

    def __init__(self, source: str) -> None:
        self._pictures = _find(source)

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> "tuple[torch.Tensor, torch.Tensor]":
        import torch

        picture = self._pictures[index]
        if len(picture.read()) < picture.size:
            raise GpuyardError(f"{picture.file} was cut off since its images were counted")
        return torch.zeros(1), torch.zeros(1)


class DiskImages:
    """As torch's datasets are: a length, and items that are (image, class)."""

    def __init__(self, pictures: Sequence[StoredImage], shape: Sequence[int]) -> None:
        self._pictures = pictures
        self._shape = tuple(shape)
        self._open = decoder()

    def __len__(self) -> int:
        return len(self._pictures)

    @property
    def classes(self) -> int:
        """One more than the largest number of a class."""
        return 1 + max(picture.label for picture in self._pictures)

    def __getitem__(self, index: int) -> "tuple[torch.Tensor, int]":
        import numpy as np
        import torch

        picture = self._pictures[index]
        channels, height, width = self._shape
        try:
            image = self._open(io.BytesIO(picture.read()))
            image = image.convert("RGB" if channels == 3 else "L").resize((width, height))
        except OSError as error:
            raise unreadable(picture.file, error) from error
        values = np.asarray(image, dtype=np.float32).reshape(height, width, channels) / 255
        return torch.from_numpy(values).permute(2, 0, 1), picture.label


def is_on_disk(source: str) -> bool:
    """A path, and not the name of a dataset or of a function."""
    return "/" in source or source.endswith(".tar") or source in (".", "..")


def find_images(source: str, shape: Sequence[int]) -> DiskImages:
    """The images of a folder or an archive, for a model that takes this shape."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UserMistake(
            f"{source} has images, and the model's input is {list(shape)}; "
            "expected [3, height, width] or [1, height, width]"
        )
    return DiskImages(_find(source), shape)


def image_count(archive: Path) -> int:
    """Of one archive."""
    return len(_of_archive(archive))


def _find(source: str) -> list[StoredImage]:
    path = Path(source).expanduser()
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return _of_archive(path)
    raise UserMistake(f"the dataset {source} is neither a directory nor a file")


def _of_folder(path: Path) -> list[StoredImage]:
    classes = sorted(child for child in path.iterdir() if child.is_dir())
    pictures = [
        StoredImage(file, 0, file.stat().st_size, label)
        for label, directory in enumerate(classes)
        for file in sorted(directory.rglob("*"))
        if file.suffix.lower() in _IMAGES and file.is_file()
    ]
    if pictures:
        return pictures
    archives = sorted(path.glob("*.tar"))
    if not archives:
        raise UserMistake(
            f"{path} has neither a directory of images for each class nor *.tar archives"
        )
    return [picture for archive in archives for picture in _of_archive(archive)]


def _of_archive(path: Path) -> list[StoredImage]:
    """webdataset's layout: `KEY.jpg` and `KEY.cls`, the class as a number, one after the other."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                key = str(name.parent / name.name.partition(".")[0])
                if name.suffix.lower() in _IMAGES and member.isreg():
                    images[key] = (member.offset_data, member.size)
                elif name.suffix == ".cls":
                    content = archive.extractfile(member)
                    labels[key] = int((content.read() if content else b"").decode())
    except (tarfile.TarError, ValueError, OSError) as error:
        raise UserMistake(f"{path} is not a webdataset archive: {error}") from error
    found = [StoredImage(path, *images[key], labels[key]) for key in images if key in labels]
    if not found:
        raise UserMistake(f"{path} has no pair of KEY.jpg and KEY.cls, as a webdataset archive has")
    return found


def decoder() -> Any:
    """What opens an image. Raises where Pillow is missing."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingRequirement(
            "images are decoded with Pillow; install it with: pip install 'gpuyard[images]'"
        ) from None
    return Image.open
