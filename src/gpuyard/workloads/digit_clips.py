"""Read and download the Free Spoken Digit Dataset (CC BY-SA 4.0).

Its files are `{digit}_{speaker}_{index}.wav`, 8 kHz mono 16-bit. gpuyard checks all clips before it stores them, and
the dataset appears completely or not at all.
"""

import contextlib
import filecmp
import gzip
import hashlib
import re
import shutil
import tarfile
import wave
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard.catalog.download import OnProgress, download
from gpuyard.errors import GpuyardError, UnknownName, UserMistake, quote
from gpuyard.files import replace_directory
from gpuyard.temporary import temporary_directory
from gpuyard.units import format_count

SAMPLE_RATE = 8_000
CLIP_SAMPLES = 12_000  # 1.5 s: all but two of the 3,000 clips are shorter
FOUNDING_SPEAKERS = ("jackson", "nicolas", "theo", "yweweler")
# hash of the output of `sha256sum *.wav` in the release's recordings, because archives of the same files can differ
RELEASE_SHA256 = "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"
ARCHIVE_URL = (
    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
)

_NAME = re.compile(r"(?P<digit>[0-9])_(?P<speaker>[^_]+)_[0-9]+\.wav")
_MAX_ARCHIVE_BYTES = 64_000_000  # the release has 16 MB
_MAX_DOWNLOAD_SECONDS = 1800.0
_MAX_UNPACKED_BYTES = 100_000_000
_MAX_CLIP_BYTES = 1_000_000


class _Clip(NamedTuple):
    path: Path
    digit: int
    speaker: str


def load_clips(
    directory: Path, speakers: Sequence[str] = FOUNDING_SPEAKERS
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the clips of these speakers, (n, 12000) in [-1, 1], and the spoken digits."""
    clips = _find_clips(directory)
    all_speakers = {clip.speaker for clip in clips}
    for speaker in speakers:
        if speaker not in all_speakers:
            raise UnknownName(f"speaker in {directory}", speaker, all_speakers)
    selected = [clip for clip in clips if clip.speaker in speakers]
    sounds = np.zeros((len(selected), CLIP_SAMPLES), dtype=np.float32)
    for row, clip in zip(sounds, selected, strict=True):
        sound = _read_wav(clip.path)[:CLIP_SAMPLES]
        row[: len(sound)] = sound
    return sounds, np.array([clip.digit for clip in selected], dtype=np.int64)


def import_clips(source: Path, target: Path) -> int:
    """Replace the target's clips by the wav files of a directory; return their number."""
    clips = _find_clips(source)
    for clip in clips:
        _read_wav(clip.path)
    if _has_same_files(target, clips):
        return len(clips)
    with _staging_directory(target.parent) as staging:
        fresh = staging / "fresh"
        fresh.mkdir()
        for clip in clips:
            shutil.copyfile(clip.path, fresh / clip.path.name)
        replace_directory(fresh, target, aside=staging / "replaced")
    return len(clips)


def fetch_clips(
    target: Path,
    progress: OnProgress = lambda _received, _total: None,
    *,
    url: str = ARCHIVE_URL,
    schemes: Sequence[str] = ("https",),
    sha256: str = RELEASE_SHA256,
) -> int:
    """Download and import the dataset's release; return the number of clips."""
    with _staging_directory(target.parent) as staging:
        archive = staging / "archive.tar.gz"
        recordings = staging / "recordings"
        recordings.mkdir()
        try:
            with archive.open("wb") as file:
                download(
                    url,
                    file,
                    max_bytes=_MAX_ARCHIVE_BYTES,
                    max_seconds=_MAX_DOWNLOAD_SECONDS,
                    schemes=schemes,
                    on_progress=progress,
                )
            _extract_recordings(archive, recordings, url)
            _check_release(recordings, url, sha256)
        except GpuyardError as error:
            raise type(error)(
                f"{error}; alternatively, unpack the archive yourself and import the directory with --from"
            ) from error
        return import_clips(recordings, target)


def _find_clips(directory: Path) -> list[_Clip]:
    if not directory.is_dir():
        raise UserMistake(f"{directory} is not a directory")
    paths = sorted(directory.glob("*.wav")) or sorted(directory.glob("recordings/*.wav"))
    if not paths:
        raise UserMistake(f"no wav files in {directory}")
    clips = []
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise UserMistake(
                f"{path}: a clip must be named DIGIT_SPEAKER_INDEX.wav, like 7_jackson_32.wav"
            )
        clips.append(_Clip(path, int(match["digit"]), match["speaker"]))
    return clips


def _read_wav(path: Path) -> npt.NDArray[np.float32]:
    try:
        with wave.open(str(path), "rb") as wav:
            form = (wav.getframerate(), wav.getnchannels(), 8 * wav.getsampwidth())
            expected = wav.getnframes()
            frames = wav.readframes(expected)
    except EOFError:
        raise UserMistake(f"{path} is truncated: its header is incomplete") from None
    except wave.Error as error:
        raise UserMistake(f"{path} is not a PCM wav file: {error}") from None
    except OSError as error:
        raise GpuyardError(f"cannot read {path}: {error.strerror}") from None
    if form != (SAMPLE_RATE, 1, 16):
        rate, channels, bits = form
        raise UserMistake(
            f"{path} has {rate} Hz, {format_count(channels, 'channel')}, and {bits} bits; "
            f"clips must have {SAMPLE_RATE} Hz, 1 channel, and 16 bits"
        )
    if len(frames) != 2 * expected or not expected:
        raise UserMistake(
            f"{path} is truncated: its header says {expected} samples, but it has {len(frames) // 2}"
        )
    return np.frombuffer(frames, dtype="<i2").astype(np.float32) / np.float32(32768)


def _has_same_files(directory: Path, clips: list[_Clip]) -> bool:
    if not directory.is_dir():
        return False
    names = {clip.path.name for clip in clips}
    return {path.name for path in directory.iterdir()} == names and all(
        filecmp.cmp(clip.path, directory / clip.path.name, shallow=False) for clip in clips
    )


@contextlib.contextmanager
def _staging_directory(parent: Path) -> Iterator[Path]:
    """Create a directory next to the final one, so that the last step is a rename; always remove it."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory(parent, "digits", hidden=True) as staging:
            yield staging
    except OSError as error:
        raise GpuyardError(f"cannot write to {parent}: {error.strerror or error}") from error


def _check_release(recordings: Path, url: str, expected: str) -> None:
    """Raise GpuyardError if the clips are not those of the release."""
    checksums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(recordings.iterdir())
    )
    digest = hashlib.sha256(checksums.encode()).hexdigest()
    if digest != expected:
        raise GpuyardError(
            f"{url}: its clips are not those of the release (SHA-256 {digest}, expected {expected})"
        )


class _BoundedReader:
    """Reads an unpacked archive up to a limit, because a small archive can unpack to terabytes."""

    def __init__(self, file: gzip.GzipFile, url: str) -> None:
        self._file, self._remaining, self._url = file, _MAX_UNPACKED_BYTES, url

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._remaining + 1))
        self._remaining -= len(data)
        if self._remaining < 0:
            raise GpuyardError(
                f"{self._url}: unpacked, it is larger than {_MAX_UNPACKED_BYTES // 1_000_000} MB"
            )
        return data


def _extract_recordings(archive: Path, directory: Path, url: str) -> None:
    """Extract only the base name and the bytes of each clip, never a path, link, owner, or mode."""
    try:
        with (
            gzip.open(archive, "rb") as unpacked,
            tarfile.open(fileobj=_BoundedReader(unpacked, url), mode="r|") as tar,  # type: ignore[call-overload]
        ):
            for member in tar:
                path = PurePosixPath(member.name)
                is_clip = path.suffix == ".wav" and path.parent.name == "recordings"
                if not (is_clip and member.isreg()):
                    continue
                if member.size > _MAX_CLIP_BYTES or not _NAME.fullmatch(path.name):
                    raise GpuyardError(
                        f"{url}: it contains {quote(path.name)}, which is not a clip"
                    )
                content = tar.extractfile(member)
                if content is not None:
                    with (directory / path.name).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError) as error:
        raise GpuyardError(f"{url}: the archive is damaged ({error})") from error
