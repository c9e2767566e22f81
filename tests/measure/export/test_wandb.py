"""W&B exports, read by wandb's own reader and uploaded by its own command, which `make soak` installs."""

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
def test_the_wandb_reader_reads_a_run(exported: list[ExportedRun], tmp_path: Path) -> None:
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    _, directory = write_wandb_runs(tmp_path / "wandb", exported, "team")
    reader = datastore.DataStore()
    reader.open_for_scan(str(next(directory.glob("*.wandb"))))
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
def serve_wandb_api() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Serve the part of W&B's API that an upload needs; yield the address and the requests received."""
    requests: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = json.loads(body)
            requests.append((self.path, request))
            content = json.dumps(_reply(request)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    query = request.get("query", "")
    if "UpsertBucket" in query:
        run = request["variables"]
        project = {"id": "p", "name": run["project"], "entity": {"id": "e", "name": "me"}}
        bucket = {
            "id": "b", "name": run["name"], "displayName": run["displayName"], "description": None,
            "config": run["config"], "sweepName": None, "project": project, "historyLineCount": 0,
        }  # fmt: skip
        return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
    if "serverInfo" in query:
        return {"data": {"serverInfo": {"features": []}}}
    if "createRunFiles" in query:
        files: dict[str, Any] = {"runID": "b", "uploadHeaders": [], "files": []}
        return {"data": {"createRunFiles": files}}
    return {"data": {}} if query else {}


@pytest.mark.soak
def test_the_wandb_command_uploads_a_complete_run(
    exported: list[ExportedRun], tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    _, directory = write_wandb_runs(tmp_path / "wandb", exported, "team")
    with serve_wandb_api() as (address, requests):
        environment = {
            **os.environ, "WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40, "WANDB_ERROR_REPORTING": "false",
            "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "wandb", "beta", "sync", str(directory)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert "Finished syncing" in done.stderr, done.stdout + done.stderr
    uploads = [
        body for path, body in requests if path == f"/files/me/team/{exported[1].id}/file_stream"
    ]
    history = [
        json.loads(line)
        for upload in uploads
        for line in upload.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
    ]
    assert [line["loss"] for line in history] == [2.5, 1.25, 2.5 / 3, 0.625, 0.5]
    assert [line["_step"] for line in history] == [0, 1, 2, 3, 4]
    *_, summary = (
        json.loads(upload["files"]["wandb-summary.json"]["content"][0])
        for upload in uploads
        if "wandb-summary.json" in upload.get("files", {})
    )
    assert summary["samples_per_second"] == pytest.approx(640)
    assert (uploads[-1]["complete"], uploads[-1]["exitcode"]) == (True, 0)
