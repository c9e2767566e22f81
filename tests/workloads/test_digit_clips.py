"""Reading, importing, and downloading the spoken digits, with all kinds of bad files."""

import hashlib
import http.server
import io
import tarfile
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.workloads.digit_clips import (
    FOUNDING_SPEAKERS,
    RELEASE_SHA256,
    fetch_clips,
    import_clips,
    load_clips,
)

REAL_CLIPS = Path(__file__).parents[2] / "../shared/spoken-digits"


def write_wav(
    path: Path, samples: int = 4000, *, rate: int = 8000, channels: int = 1, width: int = 2
) -> Path:
    with wave.open(str(path), "wb") as wav:
        wav.setnchannels(channels)
        wav.setsampwidth(width)
        wav.setframerate(rate)
        values = np.arange(samples * channels * width // 2, dtype="<i2") - 2000
        wav.writeframes(values.tobytes())
    return path


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """Create two digits of every founding speaker and one more, one clip longer than 1.5 s."""
    directory = tmp_path / "clips"
    directory.mkdir()
    for speaker in (*FOUNDING_SPEAKERS, "lucas"):
        write_wav(directory / f"0_{speaker}_0.wav", 4000)
        write_wav(directory / f"7_{speaker}_0.wav", 13_000)
    return directory


def test_clips_are_cut_and_padded_to_one_and_a_half_seconds(clips: Path) -> None:
    sounds, digits = load_clips(clips)
    assert sounds.shape == (8, 12_000)
    assert sounds.dtype == np.float32
    assert digits.dtype == np.int64
    assert digits.tolist() == [0] * 4 + [7] * 4
    assert sounds[0, 0] == -2000 / 32768
    assert sounds[0, 3999] == 1999 / 32768
    assert not sounds[0, 4000:].any()
    assert sounds[7, 11_999] == 9999 / 32768


def test_speakers_can_be_chosen(clips: Path) -> None:
    assert len(load_clips(clips, ["lucas"])[0]) == 2
    with pytest.raises(UnknownName, match="did you mean 'jackson'"):
        load_clips(clips, ["jaxon"])


@pytest.mark.skipif(not REAL_CLIPS.is_dir(), reason="the dataset is not here")
def test_the_founding_experiment_has_2000_clips() -> None:
    sounds, digits = load_clips(REAL_CLIPS)
    assert sounds.shape == (2000, 12_000)
    assert np.bincount(digits).tolist() == [200] * 10
    assert -1 <= sounds.min() < -0.5
    assert 0.5 < sounds.max() <= 1


def test_an_empty_or_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=f"no wav files in {tmp_path}"):
        load_clips(tmp_path)
    with pytest.raises(UserMistake, match="nowhere is not a directory"):
        load_clips(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 44_100}, "44100 Hz, 1 channel.* 16 bits.*8000 Hz"),
        ({"channels": 2}, "8000 Hz, 2 channel"),
        ({"width": 4}, "32 bits"),
        ({"samples": 0}, "0 samples"),
    ],
)
def test_a_file_in_another_format_is_named(
    clips: Path, change: dict[str, int], message: str
) -> None:
    write_wav(clips / "3_theo_5.wav", **change)
    with pytest.raises(UserMistake, match=f"3_theo_5.wav.*{message}"):
        load_clips(clips)


@pytest.mark.parametrize(
    ("kept_bytes", "message"),
    [(1000, "4000 samples"), (20, "header"), (0, "header")],
)
def test_a_truncated_file_is_named(clips: Path, kept_bytes: int, message: str) -> None:
    path = clips / "0_theo_0.wav"
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(UserMistake, match=f"0_theo_0.wav.*{message}"):
        load_clips(clips)


def test_a_file_without_sound_or_digit_is_named(clips: Path) -> None:
    (clips / "1_theo_0.wav").write_text("<html>not found</html>")
    with pytest.raises(UserMistake, match=r"1_theo_0\.wav is not a PCM wav file"):
        load_clips(clips)
    (clips / "1_theo_0.wav").rename(clips / "intro.wav")
    with pytest.raises(UserMistake, match=r"intro\.wav: .*DIGIT_SPEAKER_INDEX"):
        load_clips(clips)


def test_import_copies_the_clips_and_may_be_repeated(clips: Path, tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "spoken-digits"
    assert import_clips(clips, target) == 10
    first = target.stat().st_ino
    assert import_clips(clips, target) == 10
    assert import_clips(target, target) == 10
    assert target.stat().st_ino == first
    np.testing.assert_array_equal(load_clips(target)[0], load_clips(clips)[0])


def test_a_second_import_replaces_the_first(clips: Path, tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "spoken-digits"
    import_clips(clips, target)
    (clips / "0_lucas_0.wav").unlink()
    write_wav(clips / "7_lucas_0.wav", 500)
    assert import_clips(clips, target) == 9
    assert (target / "7_lucas_0.wav").stat().st_size == 44 + 1000
    assert [path.name for path in target.parent.iterdir()] == ["spoken-digits"]


def test_a_failed_import_leaves_nothing_behind(clips: Path, tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "spoken-digits"
    import_clips(clips, target)
    names = sorted(path.name for path in target.iterdir())
    write_wav(clips / "9_zoe_0.wav", rate=16_000)
    with pytest.raises(UserMistake, match="9_zoe_0"):
        import_clips(clips, target)
    assert sorted(path.name for path in target.iterdir()) == names
    assert [path.name for path in target.parent.iterdir()] == ["spoken-digits"]


def test_a_home_that_cannot_be_written_is_named(clips: Path, tmp_path: Path) -> None:
    target = tmp_path / "home" / "datasets" / "spoken-digits"
    (tmp_path / "home").write_text("a file, not a directory")
    with pytest.raises(GpuyardError, match=r"cannot write to .*home/datasets"):
        import_clips(clips, target)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a directory over HTTP; yield it and its address."""
    directory = tmp_path / "served"
    directory.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(directory))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path != "/cut.tar.gz":
                super().do_GET()
                return
            content = (directory / "release.tar.gz").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield directory, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def write_release(archive: Path, clips: Path) -> None:
    """Write a release as GitHub packs it, plus the members of a hostile archive."""
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(clips.glob("*.wav")):
            tar.add(path, f"free-spoken-digit-dataset-1.0.10/recordings/{path.name}")
        for name in ("README.md", "recordings/notes.txt", "elsewhere/5_theo_1.wav"):
            tar.addfile(tarfile.TarInfo(f"free-spoken-digit-dataset-1.0.10/{name}"))
        escaping = tarfile.TarInfo("../../../recordings/../escaped.wav")
        escaping.size = 4
        tar.addfile(escaping, io.BytesIO(b"RIFF"))
        link = tarfile.TarInfo("free-spoken-digit-dataset-1.0.10/recordings/6_theo_1.wav")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)


def checksum(clips: Path) -> str:
    """Return the result of `sha256sum *.wav | sha256sum`."""
    listing = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(clips.glob("*.wav"))
    )
    return hashlib.sha256(listing.encode()).hexdigest()


@pytest.mark.skipif(not REAL_CLIPS.is_dir(), reason="the dataset is not here")
def test_the_checksum_matches_the_release() -> None:
    assert checksum(REAL_CLIPS / "recordings") == RELEASE_SHA256


def test_fetch_extracts_only_the_recordings(
    clips: Path, served: tuple[Path, str], tmp_path: Path
) -> None:
    directory, address = served
    write_release(directory / "release.tar.gz", clips)
    target = tmp_path / "datasets" / "spoken-digits"
    progress: list[tuple[int, int | None]] = []
    url = f"{address}/release.tar.gz"
    count = fetch_clips(
        target,
        lambda *args: progress.append(args),
        url=url,
        schemes=("http",),
        sha256=checksum(clips),
    )
    assert count == 10
    fetched = {path.name: path.read_bytes() for path in target.iterdir()}
    assert fetched == {path.name: path.read_bytes() for path in clips.iterdir()}
    assert [path.name for path in target.parent.iterdir()] == ["spoken-digits"]
    assert not list(tmp_path.rglob("escaped.wav"))
    size = (directory / "release.tar.gz").stat().st_size
    assert progress[-1] == (size, size)


def test_a_failed_download_names_the_fix_and_leaves_nothing(
    clips: Path, served: tuple[Path, str], tmp_path: Path
) -> None:
    directory, address = served
    write_release(directory / "release.tar.gz", clips)
    content = (directory / "release.tar.gz").read_bytes()
    (directory / "damaged.tar.gz").write_bytes(content[: len(content) // 2])
    (directory / "page.tar.gz").write_text("<html>")
    target = tmp_path / "datasets" / "spoken-digits"
    for name, reason in (
        ("missing.tar.gz", "404"),
        ("cut.tar.gz", r"\d+ of \d+ bytes"),
        ("damaged.tar.gz", "the archive is damaged"),
        ("page.tar.gz", "the archive is damaged"),
    ):
        with pytest.raises(GpuyardError, match=f"{reason}.*import the directory"):
            fetch_clips(target, url=f"{address}/{name}", schemes=("http",))
    with pytest.raises(GpuyardError, match=r"127\.0\.0\.1:1"):
        fetch_clips(target, url="http://127.0.0.1:1/x.tar.gz", schemes=("http",))
    assert not list(target.parent.iterdir())


def test_nothing_is_fetched_without_encryption(tmp_path: Path) -> None:
    for url in ("http://example.org/x.tar.gz", "file:///etc/passwd"):
        with pytest.raises(UserMistake, match="expected an https address"):
            fetch_clips(tmp_path, url=url)
