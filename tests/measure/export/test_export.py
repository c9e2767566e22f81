"""Measurements for other programs: as Prometheus' own parser reads them, and as `wandb` writes its files."""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpuyard import files
from gpuyard.errors import UserMistake
from gpuyard.measure import ResultsStore
from gpuyard.measure.export.prometheus import prometheus_text
from gpuyard.measure.export.runs import ExportedRun, exported_runs
from gpuyard.measure.export.wandb import log_of, write_wandb_runs
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.links.tables import LINKS
from gpuyard.measure.training.tables import TRAIN
from tests.conftest import Cli, MakeMeasurement

RECORDED = Path(__file__).parent / "recorded" / "wandb-0.31.0.wandb"


def test_a_run_has_what_was_set_what_came_out_and_how_it_went(exported: list[ExportedRun]) -> None:
    run = exported[1]
    assert (run.facts["workers"], run.facts["batch_per_worker"]) == (2, 64)
    assert run.figures["samples_per_second"] == pytest.approx(640)
    assert [moment.step for moment in run.moments] == [50, 100, 150, 200, 250]
    assert run.moments[-1].values["loss"] == 0.5
    assert run.ended - run.started == 50
    assert run.name == 'digits "at\\once", 2 workers, batch 64'


def test_a_bench_of_training_goes_there_too(make_measurement: MakeMeasurement) -> None:
    (run,) = exported_runs(TRAIN, [make_measurement()])
    assert run.figures["step_seconds"] == 0.2
    assert run.moments[0].values["samples_per_second"] == pytest.approx(100)


def test_what_is_no_training_run_does_not() -> None:
    with pytest.raises(UserMistake, match="are no training runs"):
        exported_runs(LINKS, [])


def test_prometheus_reads_the_last_of_each_configuration(exported: list[ExportedRun]) -> None:
    older = ExportedRun(**{**vars(exported[0]), "figures": {"samples_per_second": 1.0}})
    families = {
        family.name: family
        for family in text_string_to_metric_families(prometheus_text([older, *exported]))
    }
    speeds = families["gpuyard_samples_per_second"]
    assert speeds.type == "gauge"
    assert {s.labels["workers"]: s.value for s in speeds.samples} == pytest.approx(
        {"1": 320, "2": 640}
    )
    assert {s.labels["workload"] for s in speeds.samples} == {'digits "at\\once"'}
    assert all(s.timestamp is None for family in families.values() for s in family.samples)
    ends = families["gpuyard_measured_timestamp_seconds"].samples
    assert [s.value for s in ends] == [1.79e9 + 40] * 2


def test_nothing_measured_is_no_line_of_prometheus() -> None:
    assert prometheus_text([]) == ""


def pieces(log: bytes) -> Iterator[bytes]:
    """The records of a log, by the description of LevelDB's format."""
    assert struct.unpack("<4sHB", log[:7]) == (b":W&B", 0xBEE1, 0)
    at, whole = 7, b""
    while at < len(log):
        room = 32768 - at % 32768
        if room < 7:
            assert not any(log[at : at + room])
            at += room
            continue
        checksum, length, kind = struct.unpack("<IHB", log[at : at + 7])
        piece = log[at + 7 : at + 7 + length]
        assert length <= room - 7
        assert len(piece) == length
        assert zlib.crc32(bytes([kind]) + piece) == checksum
        assert (kind in (1, 2)) == (whole == b"")
        whole += piece
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""
    assert whole == b""


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Of a protocol buffer, by its description."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            assert kind == 2
            length = varint()
            yield number, message[at : at + length]
            at += length
    assert at == len(message)


def items(message: bytes) -> dict[str, Any]:
    """Of a history, summary or config: the key, or its path, and the value."""
    found = {}
    for number, item in fields(message):
        if number == 1:
            said = dict(fields(item))
            found[(said.get(1) or said[2]).decode()] = json.loads(said[16])
    return found


def contents(log: bytes) -> dict[str, Any]:
    """What matters of a run; of a file of wandb's own and of ours."""
    records = [dict(fields(piece)) for piece in pieces(log)]
    assert [record[1] for record in records] == list(range(1, len(records) + 1))
    (run,) = (dict(fields(record[17])) for record in records if 17 in record)
    return {
        "kinds": [next(number for number in record if number in (2, 3, 17, 18, 21)) for record in records
                  if set(record) & {2, 3, 17, 18, 21}],
        "awaited": [next(n for n in (17, 18) if n in record) for record in records
                    if 16 in record and 4 in dict(fields(record[16]))],
        "min_consumer": dict(fields(dict(fields(records[0][21]))[1]))[2],
        "id": run[1].decode(),
        "project": run[3].decode(),
        "name": run[8].decode(),
        "host": run[13].decode(),
        "config": items(run[4]),
        "started": dict(fields(run[17]))[1],
        "history": [items(record[2]) for record in records if 2 in record],
        "steps": [dict(fields(dict(fields(record[2]))[2])).get(1, 0) for record in records if 2 in record],
        "summary": {k: v for record in records if 3 in record for k, v in items(record[3]).items()},
    }  # fmt: skip


def test_the_reader_of_this_test_reads_what_wandb_wrote() -> None:
    real = contents(RECORDED.read_bytes())
    assert (real["id"], real["project"], real["name"]) == ("abc123", "digits", "first")
    assert real["config"]["batch"] == 64
    assert [line["loss"] for line in real["history"]] == [1.5, 0.75, 0.5]
    assert real["steps"] == [0, 1, 2]
    assert real["min_consumer"] == b"0.70.0"
    assert {"_step", "_runtime", "_timestamp"} < set(real["history"][0])


def test_a_run_for_wandb_has_what_wandb_itself_writes(
    exported: list[ExportedRun], tmp_path: Path
) -> None:
    _, place = write_wandb_runs(tmp_path / "wandb", exported, "team")
    (file,) = place.glob("*.wandb")
    assert file.name == f"run-{exported[1].id}.wandb"
    assert place.name == f"offline-run-20260921_141310-{exported[1].id}"
    ours, real = contents(file.read_bytes()), contents(RECORDED.read_bytes())
    assert ours["min_consumer"] == real["min_consumer"]
    assert ours["awaited"] == real["awaited"] == [17, 18]
    assert (ours["kinds"][:2], ours["kinds"][-1]) == (real["kinds"][:2], real["kinds"][-1])
    assert (ours["id"], ours["project"]) == (exported[1].id, "team")
    assert ours["config"]["workers"] == 2
    assert [line["loss"] for line in ours["history"]] == [2.5, 1.25, 2.5 / 3, 0.625, 0.5]
    assert ours["steps"] == [0, 1, 2, 3, 4]
    assert set(real["history"][0]) <= set(ours["history"][0])
    assert ours["summary"]["samples_per_second"] == pytest.approx(640)
    assert ours["started"] == 1.79e9 - 10


@given(st.lists(st.integers(0, 70_000), max_size=8))
def test_records_of_any_length_are_cut_at_blocks(lengths: list[int]) -> None:
    records = [bytes([i + 1]) * length for i, length in enumerate(lengths) if length]
    assert list(pieces(b"".join(log_of(records)))) == records


def stored(home: Path, records: list[JobRun]) -> None:
    store = ResultsStore(files.results_file())
    for record in records:
        store.add(record)


def test_the_command_writes_each(
    cli: Cli, home: Path, records: list[JobRun], tmp_path: Path
) -> None:
    stored(home, records)
    export = ("results", "export", "--kind", "job", "--to")
    text = cli(*export, "prometheus").stdout
    assert text.count("gpuyard_samples_per_second{") == 2
    file = tmp_path / "gpuyard.prom"
    said = cli(*export, "prometheus", "--output", str(file))
    assert (said.stdout, file.read_text()) == ("", text)
    said = cli(*export, "wandb", "--experiment", "team", cwd=tmp_path)
    assert "upload with: wandb sync" in said.stderr
    places = [tmp_path / line for line in said.stdout.splitlines()]
    assert [contents(next(p.glob("*.wandb")).read_bytes())["project"] for p in places] == [
        "team"
    ] * 2
    again = cli(*export, "wandb", "--experiment", "team", cwd=tmp_path)
    assert again.stdout == said.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--to", "mlflow"), "Name it with --server URL, or set MLFLOW_TRACKING_URI"),
        (
            ("--to", "mlflow", "--server", "localhost:5000"),
            "expected the address of an MLflow server",
        ),
        (("--to", "mlflow", "--server", "file:///etc"), "expected the address of an MLflow server"),
        (("--to", "mlflow", "--server", "http://h", "--output", "x"), "writes no file"),
        (("--to", "wandb", "--server", "http://h"), "--server goes with --to mlflow"),
        (("--to", "wandb", "--format", "csv"), "leave out --format"),
        (("--to", "wandb", "--kind", "links"), "are no training runs"),
        (("--to", "wandbb"), "'wandbb'"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(
    arguments: tuple[str, ...], sentence: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert sentence in cli("results", "export", *arguments, status=2).stderr
