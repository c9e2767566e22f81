"""A file is replaced completely or not at all."""

import os
import threading
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import check_writable, create_directory, create_parent, replace_file, write_text


def test_it_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert set(tmp_path.iterdir()) <= {path, tmp_path / "gpuyard-home"}


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "one")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GpuyardError, match=r"file.txt .*No space left on device"):
        write_text(path, "two")
    assert path.read_text() == "one"
    assert set(tmp_path.iterdir()) <= {path, tmp_path / "gpuyard-home"}


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(pipe)
    reader = threading.Thread(target=pipe.read_text)
    reader.start()
    write_text(pipe, "text")
    reader.join(10)
    assert pipe.is_fifo()


def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    for write in (check_writable, lambda path: write_text(path, "text")):
        with pytest.raises(GpuyardError, match="occupied is a file"):
            write(tmp_path / "occupied" / "file.txt")


def test_a_missing_directory_is_a_mistake_and_is_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "not" / "there" / "file.txt"
    for write in (check_writable, create_directory, lambda path: write_text(path, "text")):
        with pytest.raises(UserMistake, match=r"file.txt .*there not found"):
            write(missing)
    with pytest.raises(UserMistake, match="there not found"), replace_file(missing):
        pass
    assert not (tmp_path / "not").exists()
    assert create_parent(missing).parent.is_dir()
