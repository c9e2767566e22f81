"""The next command removes the temporary files of a killed process and nothing else."""

import contextlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard import files
from gpuyard.files import replace_directory, replace_file, write_text
from gpuyard.temporary import (
    new_token,
    remove_leftovers,
    shared_directory,
    temporary_directory,
    temporary_file,
)
from tests.conftest import Cli

HOLDER = """
import contextlib, sys
from pathlib import Path
from gpuyard.files import replace_file
from gpuyard.temporary import temporary_directory
with contextlib.ExitStack() as held:
    for path in map(Path, sys.argv[2:]):
        if sys.argv[1] == "file":
            held.enter_context(replace_file(path / "c.npz")).write(b"half")
        else:
            directory = held.enter_context(temporary_directory(path, sys.argv[1], hidden=sys.argv[1] in ("storage", "digits")))
            (directory / "half").mkdir()
            (directory / "half" / "file").write_text("half")
    print("held", flush=True)
    sys.stdin.read()
"""
TOKEN = new_token()
KINDS = ["file", "storage", "digits", "ranks", "torchrun", "horovod", "root"]


@contextlib.contextmanager
def hold_temporaries(kind: str, *directories: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLDER, kind, *map(str, directories)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Create every directory that commands clean up."""
    directories = [*files.data_directories(), tmp_path / "tmp"]
    for path in directories:
        path.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return directories


def list_temporaries(directories: list[Path]) -> list[Path]:
    return sorted(p for d in directories for p in d.iterdir() if "gpuyard-" in p.name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_command_removes_leftovers_of_a_killed_one(
    kind: str, cli: Cli, kept: list[Path]
) -> None:
    with hold_temporaries(kind, *kept) as holder:
        assert len(list_temporaries(kept)) == len(kept)
        cli("catalog", "links")
        assert len(list_temporaries(kept)) == len(kept), "a running process still holds them"
        holder.kill()
        holder.wait()
        assert len(list_temporaries(kept)) == len(kept)
    cli("catalog", "links")
    assert list_temporaries(kept) == []


@pytest.mark.parametrize(
    "line",
    ["cost --rent $1/h --buy $9000 --html {}/page.html", "study no.study.yaml --output-dir {}"],
)
def test_leftovers_in_an_output_directory_are_removed(line: str, cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "pages"
    directory.mkdir()
    with hold_temporaries("file", directory):
        pass
    assert list_temporaries([directory])
    cli(*line.format(directory).split(), status=0 if "cost" in line else 2)
    assert list_temporaries([directory]) == []


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    target = directory / "target"
    target.mkdir()
    (target / "mine").write_text("mine")
    (directory / f".gpuyard-part-{TOKEN}x").write_text("longer")
    (directory / f".gpuyard-part-{TOKEN[1:]}").write_text("shorter")
    (directory / f".gpuyard-part-{TOKEN[:15]}G").write_text("not ours")
    (directory / f"gpuyard-part-{TOKEN}").write_text("not hidden")
    (directory / f"gpuyard-ranks-{TOKEN}\n").mkdir()
    (directory / f"gpuyard-other-{TOKEN}").mkdir()
    (directory / f".gpuyard-part-{TOKEN}").symlink_to(target / "mine")
    (directory / f"gpuyard-ranks-{TOKEN}").symlink_to(target, target_is_directory=True)
    (directory / f"gpuyard-horovod-{TOKEN}").write_text("a file")
    (directory / f".gpuyard-part-{TOKEN[::-1]}").mkdir()
    os.mkfifo(directory / f".gpuyard-part-{'0' * 16}")
    before = sorted(directory.rglob("*"))
    remove_leftovers(directory, tmp_path / "not there", target / "mine")
    assert sorted(directory.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the owner of a file needs root")
def test_files_of_another_user_stay(tmp_path: Path) -> None:
    file, directory = tmp_path / f".gpuyard-part-{TOKEN}", tmp_path / f"gpuyard-ranks-{TOKEN}"
    file.write_text("theirs")
    directory.mkdir()
    for path in (file, directory):
        os.chown(path, 12345, 12345)
    remove_leftovers(tmp_path)
    assert file.exists()
    assert list(directory.iterdir()) == []
    for path in (file, directory):
        os.chown(path, 0, 0)
    remove_leftovers(tmp_path)
    assert not file.exists()
    assert not directory.exists()


def test_leftovers_of_another_host_stay_for_a_day(tmp_path: Path) -> None:
    """A lock on a shared disk may be invisible to other hosts."""
    elsewhere = TOKEN[8:] + TOKEN[:8]
    file, directory = (
        tmp_path / f".gpuyard-part-{elsewhere}",
        tmp_path / f"gpuyard-ranks-{elsewhere}",
    )
    file.write_text("half")
    directory.mkdir()
    (directory / "half").write_text("half")
    remove_leftovers(tmp_path)
    assert file.exists()
    assert [path.name for path in directory.iterdir()] == ["half"]
    for path in (file, directory):
        os.utime(path, (0, time.time() - 25 * 3600))
    remove_leftovers(tmp_path)
    assert not file.exists()
    assert not directory.exists()


def test_a_link_in_a_leftover_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    leftover = tmp_path / f"gpuyard-ranks-{TOKEN}"
    leftover.mkdir()
    (leftover / "link").symlink_to(tmp_path / "mine", target_is_directory=True)
    remove_leftovers(tmp_path)
    assert not leftover.exists()
    assert (tmp_path / "mine" / "file").read_text() == "mine"


WORKER = """
import sys
from pathlib import Path
from gpuyard.temporary import temporary_directory, temporary_file, remove_leftovers
directory = Path(sys.argv[1])
for _ in range(300):
    remove_leftovers(directory)
    with temporary_file(directory, 0o666) as (path, file), temporary_directory(directory, "ranks") as child:
        file.write(b"x")
        (child / "x").write_text("x")
        remove_leftovers(directory)
        assert path.exists() and (child / "x").exists()
"""


def test_files_in_use_are_not_leftovers(tmp_path: Path) -> None:
    directory = tmp_path / "busy"
    directory.mkdir()
    command = [sys.executable, "-c", WORKER, str(directory)]
    makers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for maker in makers:
        with maker:
            assert maker.communicate()[1] == ""
    remove_leftovers(directory)
    assert list(directory.iterdir()) == []


def test_a_new_name_is_flushed_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, bool]] = []
    path = tmp_path / "file.txt"

    def fsync(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    monkeypatch.setattr("os.fsync", fsync)
    write_text(path, "one")
    assert synced == [(False, False), (True, True)]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    directory.mkdir()
    with pytest.raises(RuntimeError), replace_file(directory / "file.txt"):
        raise RuntimeError
    with pytest.raises(RuntimeError), temporary_file(directory, 0o666):
        raise RuntimeError
    with pytest.raises(RuntimeError), temporary_directory(directory, "ranks"):
        raise RuntimeError
    assert list(directory.iterdir()) == []


def test_temporary_files_are_in_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert shared_directory() == tmp_path
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setenv("TEMP", str(tmp_path))
    assert shared_directory() == tmp_path


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_directory_is_replaced_atomically(
    can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, target, aside = (tmp_path / name for name in ("fresh", "target", "aside"))
    renamed: list[Path] = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: renamed.append(path) or rename(path, to))  # type: ignore[func-returns-value]
    if not can_exchange:
        monkeypatch.setattr("gpuyard.files._exchange", lambda *_: False)
    for name in ("one", "two"):
        fresh.mkdir()
        (fresh / name).touch()
        renamed.clear()
        replace_directory(fresh, target, aside=aside)
        assert [path.name for path in target.iterdir()] == [name]
    assert [path.name for path in (fresh if can_exchange else aside).iterdir()] == ["one"]
    assert len(renamed) == (0 if can_exchange else 2)  # the target exists at all times
