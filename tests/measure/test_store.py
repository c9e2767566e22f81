"""The store keeps every record, with several writers and whatever is in its file."""

import contextlib
import csv
import io
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.links.tables import LINKS
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.tables import TRAIN

Make = Callable[..., Measurement]
MakeBench = Callable[..., LinkBench]


def test_reading_makes_no_file(store: ResultsStore) -> None:
    assert store.records(Measurement) == []
    assert store.latest(Measurement, "key") is None
    assert not store.path.exists()


def test_added_records_are_read_back(store: ResultsStore, make_measurement: Make) -> None:
    measurement = make_measurement()
    store.add(measurement)
    assert store.records(Measurement) == [measurement]
    assert ResultsStore(store.path).latest(Measurement, measurement.key) == measurement


def test_find_gives_the_latest(store: ResultsStore, make_measurement: Make) -> None:
    for number in (1, 2):
        store.add(make_measurement(number, key="same"))
    latest = store.latest(Measurement, "same")
    assert latest is not None
    assert latest.id == make_measurement(2).id


def test_list_of_one_workload(store: ResultsStore, make_measurement: Make) -> None:
    store.add(make_measurement(1, workload="a"))
    store.add(make_measurement(2, workload="b"))
    assert [m.workload for m in store.records(Measurement, "b")] == ["b"]


def test_get_by_prefix(store: ResultsStore, make_measurement: Make) -> None:
    for name in ("aa11", "aa22", "b%_3"):
        store.add(make_measurement(id=name))
    assert store.get("aa2").id == "aa22"
    assert store.get("b").id == "b%_3"
    with pytest.raises(UserMistake, match="aa11, aa22"):
        store.get("aa")
    with pytest.raises(UserMistake, match="starts with '%'"):
        store.get("%")
    with pytest.raises(UserMistake, match="results list"):
        store.get("zz")


def test_file_is_in_write_ahead_mode_with_its_version(
    store: ResultsStore, make_measurement: Make
) -> None:
    store.add(make_measurement())
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_link_benches_and_training_share_a_store(
    store: ResultsStore, make_measurement: Make, make_bench: MakeBench
) -> None:
    training, bench = make_measurement(key="same"), make_bench().model_copy(update={"key": "same"})
    store.add(training)
    store.add(bench)
    assert store.records(Measurement) == [training]
    assert store.records(LinkBench) == [bench]
    # a sweep never mistakes a bench for one of its points
    assert store.latest(Measurement, "same") == training
    assert store.get(bench.id[:3]) == bench
    assert store.get(training.id) == training


def test_kinds_of_later_versions_are_passed_over(
    store: ResultsStore, make_measurement: Make
) -> None:
    store.add(make_measurement())
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(
            "INSERT INTO measurements (id, key, created_at, kind, workload, document)"
            " VALUES ('later', 'k', '', 'weather', '', '{}')"
        )
        connection.commit()
    assert len(store.records(Measurement)) == 1
    assert store.records(LinkBench) == []
    with pytest.raises(UserMistake, match="'later'"):
        store.get("later")


_WRITER = """
import sys
from pathlib import Path
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
store = ResultsStore(Path(sys.argv[1]))
print("ready", flush=True)
plain = Measurement.model_validate_json(sys.stdin.readline())
for number in range(50):
    store.add(plain.model_copy(update={"id": f"{sys.argv[2]}-{number}"}))
"""


def test_writers_at_once_lose_nothing(store: ResultsStore, make_measurement: Make) -> None:
    document = make_measurement().model_dump_json() + "\n"
    with contextlib.ExitStack() as until_end:
        writers = [
            until_end.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _WRITER, str(store.path), name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for name in "abc"
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:  # all have started, so they race to create the file as well
            assert writer.stdin is not None
            writer.stdin.write(document)
            writer.stdin.flush()
        assert [writer.communicate()[1] for writer in writers] == ["", "", ""]
    ids = [m.id for m in store.records(Measurement)]
    assert sorted(ids) == sorted(f"{name}-{number}" for name in "abc" for number in range(50))


def test_corrupt_file_is_a_sentence_and_stays(tmp_path: Path, make_measurement: Make) -> None:
    path = tmp_path / "results.sqlite"
    path.write_bytes(b"not a database at all " * 500)
    before = path.read_bytes()
    acts: list[Callable[[ResultsStore], object]] = [
        lambda store: store.records(Measurement),
        lambda store: store.add(make_measurement()),
    ]
    for act in acts:
        with pytest.raises(GpuyardError, match=r"results\.sqlite is not a .*results store"):
            act(ResultsStore(path))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["results.sqlite"]


def test_damaged_pages_are_a_sentence(store: ResultsStore, make_measurement: Make) -> None:
    for number in range(200):
        store.add(make_measurement(number))
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.path.write_bytes(content)
    with pytest.raises(GpuyardError, match=r"results\.sqlite"):
        store.records(Measurement)
    assert store.path.read_bytes() == bytes(content)


def test_newer_store_is_left_alone(store: ResultsStore, make_measurement: Make) -> None:
    store.add(make_measurement())
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA user_version = 9")
    for act in (
        lambda: store.records(Measurement),
        lambda: store.add(make_measurement(2)),
    ):
        with pytest.raises(GpuyardError, match=r"newer gpuyard \(store version 9"):
            act()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM measurements").fetchone() == (1,)


def test_store_that_another_process_is_creating_is_accepted(
    store: ResultsStore, make_measurement: Make
) -> None:
    store.path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # the file exists, its tables do not yet
    assert store.path.stat().st_size > 0
    assert store.records(Measurement) == []
    store.add(make_measurement())
    assert store.records(Measurement) == [make_measurement()]


def test_another_programs_database_is_left_alone(tmp_path: Path, make_measurement: Make) -> None:
    path = tmp_path / "photos.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(GpuyardError, match="another program's database"):
        ResultsStore(path).add(make_measurement())
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("photos",)]


def test_place_that_cannot_be_written_is_a_sentence(tmp_path: Path, make_measurement: Make) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuyardError, match="cannot be used"):
        ResultsStore(tmp_path / "file" / "results.sqlite").add(make_measurement())
    with pytest.raises(GpuyardError, match="cannot be used"):
        ResultsStore(tmp_path).add(make_measurement())


def test_json_lines_round_trip(make_measurement: Make) -> None:
    measurements = [make_measurement(1), make_measurement(2, all_reduce_seconds=0.5)]
    lines = to_json_lines(measurements).splitlines()
    assert [Measurement.model_validate_json(line) for line in lines] == measurements


def test_csv_rows(make_measurement: Make) -> None:
    (row,) = csv.DictReader(io.StringIO(TRAIN.to_csv([make_measurement()])))
    assert row["workload"] == 'digits, "spoken"'
    assert float(row["samples_per_second"]) == 100.125
    assert float(row["exposed_communication_seconds"]) == 0.075
    assert row["all_reduce_seconds"] == ""


def test_links_are_exported_whole_or_a_row_each(make_bench: MakeBench) -> None:
    benches = [make_bench(1), make_bench(2)]
    lines = to_json_lines(benches).splitlines()
    assert [LinkBench.model_validate_json(line) for line in lines] == benches
    rows = list(csv.DictReader(io.StringIO(LINKS.to_csv(benches))))
    assert [row["id"] for row in rows] == [bench.id for bench in benches for _ in range(3)]
    assert (rows[2]["source"], rows[2]["target"]) == ("GPU1", "GPU0")
    assert float(rows[2]["bytes_per_second"]) == 5.8e9
    assert float(rows[2]["expected_bytes_per_second"]) == 12e9
    assert rows[2]["verdict"] == "slow"
    assert (rows[0]["peer"], rows[1]["peer"], rows[0]["cores"]) == ("", "True", "")
