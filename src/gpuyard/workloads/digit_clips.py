"""The Free Spoken Digit Dataset (CC BY-SA 4.0): reading its clips, and bringing them here.

Its files are `{digit}_{speaker}_{index}.wav`, 8 kHz mono 16-bit. What is stored has been read in full
before, and appears whole or not at all.
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

from gpuyard.catalog.download import Received, download
from gpuyard.errors import GpuyardError, UnknownName, UserMistake, quoted
from gpuyard.files import replace_directory
from gpuyard.temporary import held_directory
from gpuyard.units import counted

SAMPLE_RATE = 8_000
CLIP_SAMPLES = 12_000  # 1.5 s: all but two of the 3,000 clips are shorter
FOUNDING_SPEAKERS = ("jackson", "nicolas", "theo", "yweweler")
# of `sha256sum *.wav` in the release's recordings: GitHub may pack the same files differently tomorrow
RELEASE_SHA256 = "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"
ARCHIVE_URL = (
    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
)

_NAME = re.compile(r"(?P<digit>[0-9])_(?P<speaker>[^_]+)_[0-9]+\.wav")
_MOST_ARCHIVE_BYTES = 64_000_000  # the release has 16 MB
_MOST_UNPACKED_BYTES = 100_000_000
_MOST_CLIP_BYTES = 1_000_000


class _Clip(NamedTuple):
    path: Path
    digit: int
    speaker: str


def load_clips(
    directory: Path, speakers: Sequence[str] = FOUNDING_SPEAKERS
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The clips of these speakers, (n, 12000) in [-1, 1], and the digit said in each."""
    clips = _find_clips(directory)
    known = {clip.speaker for clip in clips}
    for speaker in speakers:
        if speaker not in known:
            raise UnknownName(f"speaker in {directory}", speaker, known)
    chosen = [clip for clip in clips if clip.speaker in speakers]
    sounds = np.zeros((len(chosen), CLIP_SAMPLES), dtype=np.float32)
    for row, clip in zip(sounds, chosen, strict=True):
        sound = _read_wav(clip.path)[:CLIP_SAMPLES]
        row[: len(sound)] = sound
    return sounds, np.array([clip.digit for clip in chosen], dtype=np.int64)


def import_clips(source: Path, target: Path) -> int:
    """Copy the wav files of a directory in place of what the target has; returns how many clips it has now."""
    clips = _find_clips(source)
    for clip in clips:
        _read_wav(clip.path)
    if _holds_exactly(target, clips):
        return len(clips)
    with _staging(target.parent) as staging:
        fresh = staging / "fresh"
        fresh.mkdir()
        for clip in clips:
            shutil.copyfile(clip.path, fresh / clip.path.name)
        replace_directory(fresh, target, aside=staging / "replaced")
    return len(clips)


def fetch_clips(
    target: Path,
    progress: Received = lambda _received, _total: None,
    *,
    url: str = ARCHIVE_URL,
    schemes: Sequence[str] = ("https",),
    sha256: str = RELEASE_SHA256,
) -> int:
    """Download the dataset's release and import it; returns how many clips there are."""
    with _staging(target.parent) as staging:
        archive = staging / "archive.tar.gz"
        recordings = staging / "recordings"
        recordings.mkdir()
        try:
            with archive.open("wb") as file:
                download(
                    url,
                    file,
                    most_bytes=_MOST_ARCHIVE_BYTES,
                    schemes=schemes,
                    received=progress,
                )
            _extract_recordings(archive, recordings, url)
            _check_release(recordings, url, sha256)
        except GpuyardError as error:
            raise type(error)(
                f"{error}; or get it another way, unpack it and import the directory with --from"
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
                f"{path}: a clip is called DIGIT_SPEAKER_INDEX.wav, like 7_jackson_32.wav"
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
        raise UserMistake(f"{path} is cut off: its header is not complete") from None
    except wave.Error as error:
        raise UserMistake(f"{path} is not a PCM wav file: {error}") from None
    except OSError as error:
        raise GpuyardError(f"cannot read {path}: {error.strerror}") from None
    if form != (SAMPLE_RATE, 1, 16):
        rate, channels, bits = form
        raise UserMistake(
            f"{path} has {rate} Hz, {counted(channels, 'channel')} and {bits} bits; "
            f"clips have {SAMPLE_RATE} Hz, 1 channel and 16 bits"
        )
    if len(frames) != 2 * expected or not expected:
        raise UserMistake(
            f"{path} is cut off: its header promises {expected} samples, {len(frames) // 2} are there"
        )
    return np.frombuffer(frames, dtype="<i2").astype(np.float32) / np.float32(32768)


def _holds_exactly(directory: Path, clips: list[_Clip]) -> bool:
    if not directory.is_dir():
        return False
    names = {clip.path.name for clip in clips}
    return {path.name for path in directory.iterdir()} == names and all(
        filecmp.cmp(clip.path, directory / clip.path.name, shallow=False) for clip in clips
    )


@contextlib.contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """A directory beside the final one, so that the last step is a rename; always removed."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with held_directory(parent, "digits", hidden=True) as staging:
            yield staging
    except OSError as error:
        raise GpuyardError(f"cannot write to {parent}: {error.strerror or error}") from error


def _check_release(recordings: Path, url: str, expected: str) -> None:
    """What came is what its makers published, clip by clip."""
    listed = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(recordings.iterdir())
    )
    found = hashlib.sha256(listed.encode()).hexdigest()
    if found != expected:
        raise GpuyardError(
            f"{url}: its clips are not those of the release (SHA-256 {found}, expected {expected})"
        )


class _Unpacked:
    """What is read of an archive, up to so many bytes: a small one can hold terabytes."""

    def __init__(self, file: gzip.GzipFile, url: str) -> None:
        self._file, self._left, self._url = file, _MOST_UNPACKED_BYTES, url

    def read(self, size: int) -> bytes:
        piece = self._file.read(min(size, self._left + 1))
        self._left -= len(piece)
        if self._left < 0:
            raise GpuyardError(
                f"{self._url}: unpacked, it is larger than {_MOST_UNPACKED_BYTES // 1_000_000} MB"
            )
        return piece


def _extract_recordings(archive: Path, directory: Path, url: str) -> None:
    """Only a member's last name and its bytes are used: no path, link, owner or mode of it."""
    try:
        with (
            gzip.open(archive, "rb") as unpacked,
            tarfile.open(fileobj=_Unpacked(unpacked, url), mode="r|") as tar,  # type: ignore[call-overload]
        ):
            for member in tar:
                path = PurePosixPath(member.name)
                wanted = path.suffix == ".wav" and path.parent.name == "recordings"
                if not (wanted and member.isreg()):
                    continue
                if member.size > _MOST_CLIP_BYTES or not _NAME.fullmatch(path.name):
                    raise GpuyardError(f"{url}: {quoted(path.name)} in it is no clip")
                content = tar.extractfile(member)
                if content is not None:
                    with (directory / path.name).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError) as error:
        raise GpuyardError(f"{url}: the archive is damaged ({error})") from error
