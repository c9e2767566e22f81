"""Generate labeled images as large as ImageNet's.

The work of storage and decoders depends on the bytes of an image, not on what it shows.
"""

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import create_directory, replace_file
from gpuyard.workloads.disk_images import count_images, import_decoder

IMAGE_BYTES = 115_000
"""The average of ImageNet's 1,281,167 images, 147 GB in total."""
CLASSES = 1000
_WIDTH, _HEIGHT = 500, 375  # ImageNet's most common size
_QUALITY = 90
_IMAGES_PER_ARCHIVE = 256
_MARKER = ".gpuyard-images"
_MAX_IMAGES = 10_000_000
_MIN_NOISE, _MAX_NOISE = 0.0, 80.0


@dataclass(frozen=True)
class GeneratedImages:
    """The images in the directory after a run."""

    images: int
    size_bytes: int
    created: int
    """The number of images that did not exist before."""


def generate_images(
    directory: Path, count: int, on_progress: Callable[[float], None]
) -> GeneratedImages:
    """Write webdataset archives with at least `count` images; existing archives stay.

    Each archive is written completely or not at all, so a killed run can continue.
    """
    if not 0 < count <= _MAX_IMAGES:
        raise UserMistake(f"expected 1 to {_MAX_IMAGES:,} images, got {count:,}")
    import_decoder()  # report a missing package before anything is written
    create_directory(directory)
    _claim(directory)
    created, size = 0, 0
    archives = [directory / f"{n:05d}.tar" for n in range(-(-count // _IMAGES_PER_ARCHIVE))]
    noise = None
    for number, archive in enumerate(archives):
        if archive.is_symlink():  # its target may belong to somebody else
            raise GpuyardError(
                f"{archive} is a link; `gpuyard data make` does not write through links"
            )
        first = number * _IMAGES_PER_ARCHIVE
        images = min(_IMAGES_PER_ARCHIVE, count - first)
        if not archive.exists() or count_images(archive) < images:
            noise = _find_noise(IMAGE_BYTES) if noise is None else noise
            _write_archive(archive, range(first, first + images), noise)
            created += images
        size += archive.stat().st_size
        on_progress((number + 1) / len(archives))
    return GeneratedImages(sum(map(count_images, archives)), size, created)


def _claim(directory: Path) -> None:
    """Mark an empty directory as ours, because a run may replace archives in it."""
    try:
        if not (directory / _MARKER).exists():
            if any(directory.iterdir()):
                raise UserMistake(
                    f"{directory} has files that `gpuyard data make` did not create; use a new or empty directory"
                )
            (directory / _MARKER).touch()
    except OSError as error:
        raise GpuyardError(f"cannot use {directory}: {error.strerror}") from error


def _write_archive(archive: Path, numbers: range, noise: float) -> None:
    try:
        with replace_file(archive) as file, tarfile.open(fileobj=file, mode="w") as packed:
            for number in numbers:
                for kind, content in (
                    ("jpg", _draw_jpeg(number, noise)),
                    ("cls", f"{number % CLASSES}".encode()),
                ):
                    member = tarfile.TarInfo(f"{number:08d}.{kind}")
                    member.size = len(content)
                    packed.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise GpuyardError(f"cannot write {archive}: {error.strerror}") from error


def _draw_jpeg(number: int, noise: float) -> bytes:
    """Draw soft patches of color under grain, the same for the same number."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(number)
    patches = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    soft = np.asarray(patches.resize((_WIDTH, _HEIGHT)), dtype=np.float32)
    grain: np.ndarray[Any, Any] = random.normal(0, noise, (_HEIGHT, _WIDTH, 1))
    image = np.clip(soft + grain, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def _find_noise(size_bytes: int) -> float:
    """Find the strength of the grain that gives an image of this size; more grain means more bytes."""
    low, high = _MIN_NOISE, _MAX_NOISE
    for _ in range(8):
        middle = (low + high) / 2
        if len(_draw_jpeg(0, middle)) < size_bytes:
            low = middle
        else:
            high = middle
    return (low + high) / 2
