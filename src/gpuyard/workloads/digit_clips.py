"""The Free Spoken Digit Dataset (CC BY-SA 4.0): reading its clips, and bringing them here.

Its files are `{digit}_{speaker}_{index}.wav`, 8 kHz mono 16-bit. What is stored has been read in full
before, and appears whole or not at all.
"""

import contextlib
import filecmp
import http.client
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import wave
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard.errors import GpuyardError, UnknownName, UserMistake

SAMPLE_RATE = 8_000
CLIP_SAMPLES = 12_000  # 1.5 s: all but two of the 3,000 clips are shorter
FOUNDING_SPEAKERS = ("jackson", "nicolas", "theo", "yweweler")
ARCHIVE_URL = (
    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
)

_NAME = re.compile(r"(?P<digit>[0-9])_(?P<speaker>[^_]+)_[0-9]+\.wav")
_CHUNK_BYTES = 1 << 18

Progress = Callable[[int, int | None], None]
"""Called with the bytes that have come so far and all that will, where the server says."""


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
        if target.exists():
            target.rename(staging / "replaced")
        fresh.rename(target)
    return len(clips)


def fetch_clips(
    target: Path,
    progress: Progress = lambda _received, _total: None,
    *,
    url: str = ARCHIVE_URL,
    schemes: Sequence[str] = ("https",),
) -> int:
    """Download the dataset's release and import it; returns how many clips there are."""
    with _staging(target.parent) as staging:
        archive = staging / "archive.tar.gz"
        _download(url, archive, progress, schemes)
        recordings = staging / "recordings"
        recordings.mkdir()
        _extract_recordings(archive, recordings, url)
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
            f"{path} has {rate} Hz, {channels} channel(s) and {bits} bits; "
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
        with tempfile.TemporaryDirectory(prefix=".spoken-digits-", dir=parent) as staging:
            yield Path(staging)
    except OSError as error:
        raise GpuyardError(f"cannot write to {parent}: {error.strerror or error}") from error


def _download(url: str, archive: Path, progress: Progress, schemes: Sequence[str]) -> None:
    _check_scheme(url, schemes)
    try:
        with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310  checked above
            _check_scheme(response.geturl(), schemes)
            length = response.headers.get("Content-Length")
            total = int(length) if length else None
            received = 0
            with archive.open("wb") as file:
                while chunk := response.read(_CHUNK_BYTES):
                    file.write(chunk)
                    received += len(chunk)
                    progress(received, total)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as e:
        reason = getattr(e, "reason", e)
        raise _download_failed(url, str(getattr(reason, "strerror", None) or reason)) from e
    if total is not None and received != total:
        raise _download_failed(url, f"only {received} of {total} bytes came")


def _check_scheme(url: str, schemes: Sequence[str]) -> None:
    if urllib.parse.urlsplit(url).scheme not in schemes:
        raise UserMistake(f"{url} is not downloaded: only {' and '.join(schemes)} is")


def _download_failed(url: str, reason: str) -> GpuyardError:
    return GpuyardError(
        f"could not download {url}: {reason}; get it another way, unpack it and import the directory"
    )


def _extract_recordings(archive: Path, directory: Path, url: str) -> None:
    """Only a member's last name and its bytes are used: no path, link, owner or mode of it."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                wanted = path.suffix == ".wav" and path.parent.name == "recordings"
                if not (wanted and member.isreg()):
                    continue
                content = tar.extractfile(member)
                if content is not None:
                    with (directory / path.name).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise _download_failed(url, f"the archive is damaged ({error})") from error
