"""What is written for W&B, read by W&B's own reader and uploaded by its own command: `make soak` installs it."""

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuyard.measure.export.runs import ExportedRun
from gpuyard.measure.export.wandb import write_wandb_runs


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_its_own_reader_reads_a_run(exported: list[ExportedRun], tmp_path: Path) -> None:
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    _, place = write_wandb_runs(tmp_path / "wandb", exported, "team")
    reader = datastore.DataStore()
    reader.open_for_scan(str(next(place.glob("*.wandb"))))
    records = []
    while (content := reader.scan_data()) is not None:
        record = messages.Record()
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


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A server on loopback that answers as much of W&B's API as an upload asks for, its address and what came."""
    came: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            said = json.loads(body)
            came.append((self.path, said))
            content = json.dumps(_answer(said)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", came
        server.shutdown()


def _answer(said: dict[str, Any]) -> dict[str, Any]:
    asked = said.get("query", "")
    if "UpsertBucket" in asked:
        told = said["variables"]
        project = {"id": "p", "name": told["project"], "entity": {"id": "e", "name": "me"}}
        bucket = {
            "id": "b", "name": told["name"], "displayName": told["displayName"], "description": None,
            "config": told["config"], "sweepName": None, "project": project, "historyLineCount": 0,
        }  # fmt: skip
        return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
    if "serverInfo" in asked:
        return {"data": {"serverInfo": {"features": []}}}
    if "createRunFiles" in asked:
        files: dict[str, Any] = {"runID": "b", "uploadHeaders": [], "files": []}
        return {"data": {"createRunFiles": files}}
    return {"data": {}} if asked else {}


@pytest.mark.soak
def test_its_own_command_uploads_a_run_to_the_end(
    exported: list[ExportedRun], tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    _, place = write_wandb_runs(tmp_path / "wandb", exported, "team")
    with receiver() as (address, came):
        environment = {
            **os.environ, "WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40, "WANDB_ERROR_REPORTING": "false",
            "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "wandb", "beta", "sync", str(place)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert "Finished syncing" in done.stderr, done.stdout + done.stderr
    streams = [
        said for path, said in came if path == f"/files/me/team/{exported[1].id}/file_stream"
    ]
    history = [
        json.loads(line)
        for said in streams
        for line in said.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
    ]
    assert [line["loss"] for line in history] == [2.5, 1.25, 2.5 / 3, 0.625, 0.5]
    assert [line["_step"] for line in history] == [0, 1, 2, 3, 4]
    *_, summary = (
        json.loads(said["files"]["wandb-summary.json"]["content"][0])
        for said in streams
        if "wandb-summary.json" in said.get("files", {})
    )
    assert summary["samples_per_second"] == pytest.approx(640)
    assert (streams[-1]["complete"], streams[-1]["exitcode"]) == (True, 0)
