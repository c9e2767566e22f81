"""What is written for W&B, read by W&B's own reader: `make soak` installs it."""

from pathlib import Path

import pytest

from gpuyard.measure.export.runs import ExportedRun
from gpuyard.measure.export.wandb import write_wandb_runs


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_its_own_reader_reads_a_run(exported: list[ExportedRun], tmp_path: Path) -> None:
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    from wandb.proto import wandb_internal_pb2

    _, place = write_wandb_runs(tmp_path / "wandb", exported, "team")
    reader = datastore.DataStore()
    reader.open_for_scan(str(next(place.glob("*.wandb"))))
    records = []
    while (content := reader.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        records.append(record)
    kinds = [record.WhichOneof("record_type") for record in records]
    assert kinds == ["header", "run", *["history"] * 5, "summary", "exit"]
    run = records[1].run
    assert (run.run_id, run.project, run.job_type) == (exported[1].id, "team", "job")
    assert {item.key: item.value_json for item in run.config.update}["workers"] == "2"
    history = [
        {i.key: i.value_json for i in r.history.item} for r in records if r.HasField("history")
    ]
    assert [line["loss"] for line in history][:2] == ["2.5", "1.25"]
