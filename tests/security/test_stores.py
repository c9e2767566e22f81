"""Databases of other programs are not changed, and damage in a results store is reported."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement

Make = Callable[..., Measurement]


@pytest.fixture
def store(tmp_path: Path) -> ResultsStore:
    return ResultsStore(tmp_path / "kept" / "results.sqlite")


def create_database(path: Path, *statements: str) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path.read_bytes()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE photos (name TEXT)"],
        ["CREATE TABLE photos (name TEXT)", "PRAGMA user_version = 1"],
        ["CREATE TABLE measurements (weight REAL)", "PRAGMA user_version = 2"],
        ["PRAGMA application_id = 7", "CREATE TABLE t (x)"],
        ["PRAGMA application_id = 7"],
    ],
)
def test_another_programs_database_is_not_changed(
    statements: list[str], tmp_path: Path, make_measurement: Make
) -> None:
    path = tmp_path / "photos.sqlite"
    before = create_database(path, *statements)
    operations: list[Callable[[ResultsStore], object]] = [
        lambda store: store.records(Measurement),
        lambda store: store.add(make_measurement()),
    ]
    for operate in operations:
        with pytest.raises(GpuyardError, match="another program's database"):
            operate(ResultsStore(path))
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["photos.sqlite"]


def test_a_damaged_row_is_reported_and_hides_no_other(
    store: ResultsStore, make_measurement: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        store.add(make_measurement(number))
    bad = make_measurement(1).id
    for damage in (b"{", b"{\xff"):
        with closing(sqlite3.connect(store.path)) as connection:
            change = "UPDATE measurements SET document = CAST(? AS TEXT) WHERE id = ?"
            connection.execute(change, (damage, bad))
            connection.commit()
        fresh = ResultsStore(store.path)
        assert [m.id for m in fresh.records(Measurement)] == [
            make_measurement(n).id for n in (0, 2)
        ]
        error = capsys.readouterr().err
        assert bad in error and str(store.path) in error
        fresh.records(Measurement)
        assert capsys.readouterr().err == ""  # reported once


def test_a_truncated_store_is_reported_and_not_changed(
    store: ResultsStore, make_measurement: Make
) -> None:
    for number in range(30):
        store.add(make_measurement(number))
    content = store.path.read_bytes()
    for cut in (1, 4096):
        store.path.write_bytes(content[:-cut])
        with pytest.raises(GpuyardError, match=r"results.sqlite"):
            store.records(Measurement)
        with pytest.raises(GpuyardError, match=r"results.sqlite"):
            store.add(make_measurement(40))
        assert store.path.read_bytes() == content[:-cut]


def test_an_empty_file_becomes_a_store(store: ResultsStore, make_measurement: Make) -> None:
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.path.touch()
    assert store.records(Measurement) == []
    store.add(make_measurement())
    assert len(store.records(Measurement)) == 1


def test_reading_leaves_no_files(store: ResultsStore, make_measurement: Make) -> None:
    store.add(make_measurement())
    before = store.path.read_bytes()
    store.records(Measurement)
    assert store.path.read_bytes() == before
    assert [p.name for p in store.path.parent.iterdir()] == [store.path.name]


_READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
exec "$2" -m gpuyard results list --json
"""


def test_a_store_on_a_read_only_mount_is_read(home: Path, make_measurement: Make) -> None:
    ResultsStore(home / "results.sqlite").add(make_measurement())
    unshare = ["unshare", "--mount", "sh", "-c"]
    if subprocess.run(
        [*unshare, "mount --bind /mnt /mnt"], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting needs root")
    done = subprocess.run(
        [*unshare, _READ_ONLY, "sh", str(home), sys.executable],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert make_measurement().id in done.stdout
