"""Labelled images as large as ImageNet's, for whoever has not the real ones at hand: what storage and decoders get to do
depends on how many bytes an image has, not on what it shows."""

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import make_directory, replacing
from gpuyard.workloads.disk_images import decoder, image_count

IMAGE_BYTES = 115_000
"""On average, as the 1,281,167 of ImageNet have: 147 GB."""
CLASSES = 1000
_WIDTH, _HEIGHT = 500, 375  # ImageNet's most common size
_QUALITY = 90
_IN_ARCHIVE = 256
_OURS = ".gpuyard-images"
_MOST = 10_000_000
_FAINTEST, _STRONGEST = 0.0, 80.0


@dataclass(frozen=True)
class MadeImages:
    """What is in the directory now."""

    images: int
    size_bytes: int
    made: int
    """Of these images, how many were not there before."""


def make_images(directory: Path, count: int, tell: Callable[[float], None]) -> MadeImages:
    """webdataset archives with `count` images at least, rounded up to whole archives; those that are there stay.

    Each archive is written whole or not at all, so a making that was killed is gone on with.
    """
    if not 0 < count <= _MOST:
        raise UserMistake(f"expected 1 to {_MOST:,} images, got {count:,}")
    decoder()  # say what is missing before anything is made
    make_directory(directory)
    _claim(directory)
    made, size = 0, 0
    archives = [directory / f"{n:05d}.tar" for n in range(-(-count // _IN_ARCHIVE))]
    noise = None
    for number, archive in enumerate(archives):
        if archive.is_symlink():  # what it names is not ours to replace
            raise GpuyardError(f"{archive} is a link; `gpuyard data make` writes through none")
        inside = min(_IN_ARCHIVE, count - number * _IN_ARCHIVE)
        if not archive.exists() or image_count(archive) < inside:
            noise = _noise_for(IMAGE_BYTES) if noise is None else noise
            _write(archive, range(number * _IN_ARCHIVE, number * _IN_ARCHIVE + inside), noise)
            made += inside
        size += archive.stat().st_size
        tell((number + 1) / len(archives))
    return MadeImages(sum(map(image_count, archives)), size, made)


def _claim(directory: Path) -> None:
    """What is written here may take the place of an archive, so all of them must be ours."""
    try:
        if not (directory / _OURS).exists():
            if any(directory.iterdir()):
                raise UserMistake(
                    f"{directory} has files that `gpuyard data make` has not made; name a directory that is new or empty"
                )
            (directory / _OURS).touch()
    except OSError as error:
        raise GpuyardError(f"{directory} can't be used: {error.strerror}") from error


def _write(archive: Path, numbers: range, noise: float) -> None:
    try:
        with replacing(archive) as file, tarfile.open(fileobj=file, mode="w") as packed:
            for number in numbers:
                for kind, content in (
                    ("jpg", _jpeg(number, noise)),
                    ("cls", f"{number % CLASSES}".encode()),
                ):
                    member = tarfile.TarInfo(f"{number:08d}.{kind}")
                    member.size = len(content)
                    packed.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise GpuyardError(f"{archive} could not be written: {error.strerror}") from error


def _jpeg(number: int, noise: float) -> bytes:
    """Soft patches of colour under grain, the same for the same number."""
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(number)
    patches = Image.fromarray(chance.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    soft = np.asarray(patches.resize((_WIDTH, _HEIGHT)), dtype=np.float32)
    grain: np.ndarray[Any, Any] = chance.normal(0, noise, (_HEIGHT, _WIDTH, 1))
    picture = np.clip(soft + grain, 0, 255).astype(np.uint8)
    written = io.BytesIO()
    Image.fromarray(picture).save(written, "JPEG", quality=_QUALITY)
    return written.getvalue()


def _noise_for(size_bytes: int) -> float:
    """How strong the grain must be: the stronger, the more bytes."""
    weak, strong = _FAINTEST, _STRONGEST
    for _ in range(8):
        middle = (weak + strong) / 2
        if len(_jpeg(0, middle)) < size_bytes:
            weak = middle
        else:
            strong = middle
    return (weak + strong) / 2
