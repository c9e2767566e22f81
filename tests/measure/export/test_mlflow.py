"""MLflow: a server that answers oddly here, and a real one in `make soak`."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.export.mlflow import MlflowServer
from gpuyard.measure.export.runs import ExportedRun

_START_SECONDS = 240.0


@contextlib.contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str | None]]]:
    """A server with one answer to all, its address, and who it was told is asking."""
    asked: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (200, b"<html>", "no answer of an MLflow server"),
        (200, b"[]", "no answer of an MLflow server"),
        (200, b"{}", "what it answers is not MLflow's"),
        (200, b'{"experiment": 7}', "what it answers is not MLflow's"),
        (
            403,
            b'{"error_code": "PERMISSION_DENIED", "message": "no\\u001b[2J"}',
            "403: 'no\\x1b[2J'",
        ),
        (500, b"", "MLflow says 500"),
        (302, b"", "MLflow says 302"),
        (
            200,
            b'{"experiment": {"experiment_id": "1", "lifecycle_stage": "deleted"}}',
            "is deleted; restore it",
        ),
    ],
)
def test_what_is_not_mlflow_is_a_sentence(
    status: int, body: bytes, sentence: str, exported: list[ExportedRun]
) -> None:
    redirected = {"Location": "http://192.0.2.1/"}
    with (
        answering(status, body, **redirected) as (address, _),
        pytest.raises(GpuyardError) as raised,
    ):
        MlflowServer(f"http://{address}").export(exported, "gpuyard")
    assert sentence in str(raised.value)


def test_nobody_there_is_a_sentence(exported: list[ExportedRun]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(GpuyardError, match="Connection refused"):
            MlflowServer(f"http://127.0.0.1:{taken.getsockname()[1]}").export(exported, "gpuyard")


@pytest.mark.parametrize(
    ("who", "environment", "told"),
    [
        ("me:pass%40word@", {}, "Basic bWU6cGFzc0B3b3Jk"),
        ("", {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "p"}, "Basic bWU6cA=="),
        ("", {"MLFLOW_TRACKING_TOKEN": "t"}, "Bearer t"),
        ("", {}, None),
    ],
)
def test_a_password_goes_to_the_server_and_nowhere_else(
    who: str, environment: dict[str, str], told: str | None, exported: list[ExportedRun]
) -> None:
    with answering(500, b"") as (address, asked):
        server = MlflowServer(f"http://{who}{address}/", environment)
        with pytest.raises(GpuyardError) as raised:
            server.export(exported, "gpuyard")
    assert asked == [told]
    assert server.address == f"http://{address}"
    assert "word" not in str(raised.value)
    with pytest.raises(UserMistake) as mistaken:
        MlflowServer("ftp://me:password@host")
    assert "password" not in str(mistaken.value)


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("mlflow")
    place = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{place}/runs.sqlite", "--artifacts-destination", str(place / "artifacts"),
    ]  # fmt: skip
    quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with (place / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=place, env=quiet, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, place / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_for(address: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):  # noqa: S310
            return
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)


def ask(server: str, path: str, asked: Any) -> Any:
    request = urllib.request.Request(  # noqa: S310
        f"{server}/api/2.0/mlflow/{path}",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def runs_of(server: str, experiment: str) -> list[Any]:
    with urllib.request.urlopen(  # noqa: S310
        f"{server}/api/2.0/mlflow/experiments/get-by-name?experiment_name={experiment}", timeout=60
    ) as answer:
        found = json.load(answer)["experiment"]["experiment_id"]
    runs: list[Any] = ask(server, "runs/search", {"experiment_ids": [found]})["runs"]
    return runs


@pytest.mark.soak
def test_a_real_server_has_every_run_once_with_all_figures(
    mlflow_server: str, exported: list[ExportedRun]
) -> None:
    server = MlflowServer(mlflow_server, {})
    assert server.export(exported, "digits") == (2, 0)
    assert server.export(exported, "digits") == (0, 2)
    runs = runs_of(mlflow_server, "digits")
    by_name = {run["info"]["run_name"]: run for run in runs}
    assert sorted(by_name) == sorted(run.name for run in exported)
    two = by_name[exported[1].name]
    assert two["info"]["status"] == "FINISHED"
    assert two["info"]["end_time"] - two["info"]["start_time"] == 50_000
    assert {p["key"]: p["value"] for p in two["data"]["params"]}["workers"] == "2"
    figures = {m["key"]: m["value"] for m in two["data"]["metrics"]}
    assert figures["samples_per_second"] == pytest.approx(640)
    query = f"run_id={two['info']['run_id']}&metric_key=window/loss"
    address = f"{mlflow_server}/api/2.0/mlflow/metrics/get-history?{query}"
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
        history = json.load(answer)["metrics"]
    assert [(m["step"], m["value"]) for m in history] == [
        (50, 2.5), (100, 1.25), (150, 2.5 / 3), (200, 0.625), (250, 0.5),
    ]  # fmt: skip


@pytest.mark.soak
def test_an_export_that_was_cut_off_is_completed(
    mlflow_server: str, exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MlflowServer(mlflow_server, {})
    really = MlflowServer._ask

    def cut_off(self: MlflowServer, method: str, path: str, *asked: Any, **rest: Any) -> Any:
        if path == "runs/update":
            raise GpuyardError("the network is gone")
        return really(self, method, path, *asked, **rest)

    monkeypatch.setattr(MlflowServer, "_ask", cut_off)
    with pytest.raises(GpuyardError, match="gone"):
        server.export(exported, "cut")
    monkeypatch.undo()
    assert [run["info"]["status"] for run in runs_of(mlflow_server, "cut")] == ["RUNNING"]
    assert server.export(exported, "cut") == (2, 0)
    assert [run["info"]["status"] for run in runs_of(mlflow_server, "cut")] == ["FINISHED"] * 2
