"""Exports for other programs, checked with Prometheus's own parser and a file that wandb wrote."""

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
from gpuyard.measure.export.prometheus import format_prometheus
from gpuyard.measure.export.runs import ExportedRun, build_exported_runs
from gpuyard.measure.export.wandb import encode_log, write_wandb_runs
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.links.tables import LINKS
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.tables import TRAIN
from tests.conftest import Cli, MakeMeasurement

RECORDED = Path(__file__).parent / "recorded" / "wandb-0.31.0.wandb"


def test_a_run_has_parameters_metrics_and_history(exported: list[ExportedRun]) -> None:
    run = exported[1]
    assert (run.parameters["workers"], run.parameters["batch_per_worker"]) == (2, 64)
    assert run.metrics["samples_per_second"] == pytest.approx(640)
    assert [moment.step for moment in run.history] == [50, 100, 150, 200, 250]
    assert run.history[-1].values["loss"] == 0.5
    assert run.ended - run.started == 50
    assert run.name == 'digits "at\\once", 2 workers, batch 64'


def test_training_benchmarks_can_be_exported(make_measurement: MakeMeasurement) -> None:
    (run,) = build_exported_runs(TRAIN, [make_measurement()])
    assert run.metrics["step_seconds"] == 0.2
    assert run.history[0].values["samples_per_second"] == pytest.approx(100)


def test_only_training_runs_can_be_exported() -> None:
    with pytest.raises(UserMistake, match=r"'links'.*training runs"):
        build_exported_runs(LINKS, [])


def test_prometheus_reads_the_latest_run_of_each_configuration(exported: list[ExportedRun]) -> None:
    older = ExportedRun(**{**vars(exported[0]), "metrics": {"samples_per_second": 1.0}})
    families = {
        family.name: family
        for family in text_string_to_metric_families(format_prometheus([older, *exported]))
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


def test_prometheus_output_is_empty_without_measurements() -> None:
    assert format_prometheus([]) == ""


def read_log(log: bytes) -> Iterator[bytes]:
    """Yield the records of a log, as LevelDB's format description defines them."""
    assert struct.unpack("<4sHB", log[:7]) == (b":W&B", 0xBEE1, 0)
    offset, record = 7, b""
    while offset < len(log):
        free = 32768 - offset % 32768
        if free < 7:
            assert not any(log[offset : offset + free])
            offset += free
            continue
        checksum, length, kind = struct.unpack("<IHB", log[offset : offset + 7])
        chunk = log[offset + 7 : offset + 7 + length]
        assert length <= free - 7
        assert len(chunk) == length
        assert zlib.crc32(bytes([kind]) + chunk) == checksum
        assert (kind in (1, 2)) == (record == b"")
        record += chunk
        offset += 7 + length
        if kind in (1, 4):
            yield record
            record = b""
    assert record == b""


def read_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the field numbers and values of an encoded protocol buffer."""
    offset = 0

    def read_varint() -> int:
        nonlocal offset
        value = shift = 0
        while True:
            byte = message[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while offset < len(message):
        number, kind = divmod(read_varint(), 8)
        if kind == 0:
            yield number, read_varint()
        else:
            assert kind == 2
            length = read_varint()
            yield number, message[offset : offset + length]
            offset += length
    assert offset == len(message)


def read_items(message: bytes) -> dict[str, Any]:
    """Return the values of a history, summary, or config by key or path."""
    values = {}
    for number, item in read_fields(message):
        if number == 1:
            fields = dict(read_fields(item))
            values[(fields.get(1) or fields[2]).decode()] = json.loads(fields[16])
    return values


def read_run(log: bytes) -> dict[str, Any]:
    """Return the parts of a .wandb file that wandb's files and ours have in common."""
    records = [dict(read_fields(record)) for record in read_log(log)]
    assert [record[1] for record in records] == list(range(1, len(records) + 1))
    (run,) = (dict(read_fields(record[17])) for record in records if 17 in record)
    return {
        "kinds": [next(number for number in record if number in (2, 3, 17, 18, 21)) for record in records
                  if set(record) & {2, 3, 17, 18, 21}],
        "with_mailbox": [next(n for n in (17, 18) if n in record) for record in records
                         if 16 in record and 4 in dict(read_fields(record[16]))],
        "min_consumer": dict(read_fields(dict(read_fields(records[0][21]))[1]))[2],
        "id": run[1].decode(),
        "project": run[3].decode(),
        "name": run[8].decode(),
        "host": run[13].decode(),
        "config": read_items(run[4]),
        "started": dict(read_fields(run[17]))[1],
        "history": [read_items(record[2]) for record in records if 2 in record],
        "steps": [dict(read_fields(dict(read_fields(record[2]))[2])).get(1, 0) for record in records if 2 in record],
        "summary": {k: v for record in records if 3 in record for k, v in read_items(record[3]).items()},
    }  # fmt: skip


def test_this_reader_reads_a_file_that_wandb_wrote() -> None:
    real = read_run(RECORDED.read_bytes())
    assert (real["id"], real["project"], real["name"]) == ("abc123", "digits", "first")
    assert real["config"]["batch"] == 64
    assert [line["loss"] for line in real["history"]] == [1.5, 0.75, 0.5]
    assert real["steps"] == [0, 1, 2]
    assert real["min_consumer"] == b"0.70.0"
    assert {"_step", "_runtime", "_timestamp"} < set(real["history"][0])


def test_an_exported_run_has_the_records_that_wandb_writes(
    exported: list[ExportedRun], tmp_path: Path
) -> None:
    _, directory = write_wandb_runs(tmp_path / "wandb", exported, "team")
    (file,) = directory.glob("*.wandb")
    assert file.name == f"run-{exported[1].id}.wandb"
    assert directory.name == f"offline-run-20260921_141310-{exported[1].id}"
    ours, real = read_run(file.read_bytes()), read_run(RECORDED.read_bytes())
    assert ours["min_consumer"] == real["min_consumer"]
    assert ours["with_mailbox"] == real["with_mailbox"] == [17, 18]
    assert (ours["kinds"][:2], ours["kinds"][-1]) == (real["kinds"][:2], real["kinds"][-1])
    assert (ours["id"], ours["project"]) == (exported[1].id, "team")
    assert ours["config"]["workers"] == 2
    assert [line["loss"] for line in ours["history"]] == [2.5, 1.25, 2.5 / 3, 0.625, 0.5]
    assert ours["steps"] == [0, 1, 2, 3, 4]
    assert set(real["history"][0]) <= set(ours["history"][0])
    assert ours["summary"]["samples_per_second"] == pytest.approx(640)
    assert ours["started"] == 1.79e9 - 10


@given(st.lists(st.integers(0, 70_000), max_size=8))
def test_records_of_any_length_are_split_at_blocks(lengths: list[int]) -> None:
    records = [bytes([i + 1]) * length for i, length in enumerate(lengths) if length]
    assert list(read_log(b"".join(encode_log(records)))) == records


def store_records(records: list[JobRun]) -> None:
    store = ResultsStore(files.results_file())
    for record in records:
        store.add(record)


def test_the_command_exports_to_prometheus_and_wandb(
    cli: Cli, home: Path, records: list[JobRun], tmp_path: Path
) -> None:
    store_records(records)
    export = ("results", "export", "--kind", "job", "--as")
    text = cli(*export, "prometheus").stdout
    assert text.count("gpuyard_samples_per_second{") == 2
    file = tmp_path / "gpuyard.prom"
    result = cli(*export, "prometheus", "--output", str(file))
    assert (result.stdout, file.read_text()) == ("", text)
    first = cli(*export, "wandb", "--experiment", "team", cwd=tmp_path)
    assert "wandb sync" in first.stderr
    (file_1,), (file_2,) = ((tmp_path / line).glob("*.wandb") for line in first.stdout.splitlines())
    assert {read_run(file.read_bytes())["project"] for file in (file_1, file_2)} == {"team"}
    second = cli(*export, "wandb", "--experiment", "team", cwd=tmp_path)
    assert second.stdout == first.stdout


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--as", "mlflow"), ("--server URL", "MLFLOW_TRACKING_URI")),
        (("--as", "mlflow", "--server", "localhost:5000"), ("'localhost:5000'", "http://")),
        (("--as", "mlflow", "--server", "file:///etc"), ("'file:///etc'", "http://")),
        (
            ("--as", "mlflow", "--server", "http://h", "--output", "x"),
            ("--as", "mlflow", "--output"),
        ),
        (("--as", "wandb", "--server", "http://h"), ("--server", "--as", "mlflow")),
        (("--as", "wandb", "--kind", "links"), ("'links'", "training runs")),
        (("--as", "wandbb"), ("'wandbb'",)),
    ],
)
def test_options_that_exclude_each_other_are_named(
    arguments: tuple[str, ...],
    fragments: tuple[str, ...],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    error = cli("results", "export", *arguments, status=2).stderr
    assert all(fragment in " ".join(error.split()) for fragment in fragments)
