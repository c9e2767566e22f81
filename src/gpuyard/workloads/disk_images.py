"""Labeled images on disk: a folder with one directory per class, or a webdataset archive.

They are read and decoded when a batch is requested, so that reading is part of the measurement.
"""

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.files import expand_home

if TYPE_CHECKING:
    import torch

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


@dataclass(frozen=True)
class StoredImage:
    """The location of one image's bytes, and its class."""

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
            raise _unreadable_image(self.file, error) from error


def _unreadable_image(file: Path, error: OSError) -> GpuyardError:
    return GpuyardError(f"{file} has an unreadable image: {error}")


class UndecodedImages:
    """A dataset for a synthetic GPU: every image is read, but not decoded."""

    def __init__(self, source: str) -> None:
        self._images = _find_stored_images(source)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> "tuple[torch.Tensor, torch.Tensor]":
        import torch

        image = self._images[index]
        if len(image.read()) < image.size:
            raise GpuyardError(f"{image.file} was truncated after its images were counted")
        return torch.zeros(1), torch.zeros(1)


class DiskImages:
    """A dataset like torch's: a length, and items that are (image, class)."""

    def __init__(self, images: Sequence[StoredImage], shape: Sequence[int]) -> None:
        self._images = images
        self._shape = tuple(shape)
        self._decode = import_decoder()

    def __len__(self) -> int:
        return len(self._images)

    @property
    def classes(self) -> int:
        """One more than the largest class number."""
        return 1 + max(image.label for image in self._images)

    def __getitem__(self, index: int) -> "tuple[torch.Tensor, int]":
        import numpy as np
        import torch

        stored = self._images[index]
        channels, height, width = self._shape
        try:
            image = self._decode(io.BytesIO(stored.read()))
            image = image.convert("RGB" if channels == 3 else "L").resize((width, height))
        except OSError as error:
            raise _unreadable_image(stored.file, error) from error
        values = np.asarray(image, dtype=np.float32).reshape(height, width, channels) / 255
        return torch.from_numpy(values).permute(2, 0, 1), stored.label


def is_on_disk(source: str) -> bool:
    """Return whether the source is a path, not the name of a dataset or a function."""
    return "/" in source or source.endswith(".tar") or source in (".", "..")


def find_images(source: str, shape: Sequence[int]) -> DiskImages:
    """Return the images of a folder or an archive, for a model with this input shape."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UserMistake(
            f"{source} has images, but the model's input is {list(shape)}; "
            "expected [3, height, width] or [1, height, width]"
        )
    return DiskImages(_find_stored_images(source), shape)


def count_images(archive: Path) -> int:
    return len(_read_archive(archive))


def _find_stored_images(source: str) -> list[StoredImage]:
    path = expand_home(source)
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        return _read_archive(path)
    raise UserMistake(f"dataset {source} not found: it is neither a directory nor a file")


def _read_folder(path: Path) -> list[StoredImage]:
    classes = sorted(child for child in path.iterdir() if child.is_dir())
    images = [
        StoredImage(file, 0, file.stat().st_size, label)
        for label, directory in enumerate(classes)
        for file in sorted(directory.rglob("*"))
        if file.suffix.lower() in _IMAGES and file.is_file()
    ]
    if images:
        return images
    archives = sorted(path.glob("*.tar"))
    if not archives:
        raise UserMistake(
            f"{path} has neither a directory of images for each class nor *.tar archives"
        )
    return [image for archive in archives for image in _read_archive(archive)]


def _read_archive(path: Path) -> list[StoredImage]:
    """Read webdataset's layout: pairs of `KEY.jpg` and `KEY.cls`, which has the class number."""
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
    pairs = [StoredImage(path, *images[key], labels[key]) for key in images if key in labels]
    if not pairs:
        raise UserMistake(
            f"{path} is not a webdataset archive: it has no pair of KEY.jpg and KEY.cls"
        )
    return pairs


def import_decoder() -> Any:
    """Return the function that opens an image; raise MissingRequirement without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingRequirement("images need Pillow: pip install 'gpuyard[images]'") from None
    return Image.open
