"""Exporting to MLflow: its own store in a directory, servers that reply with junk, and a real server in `make soak`."""

import contextlib
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
from typing import TYPE_CHECKING, Any

import pytest

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.measure.export.mlflow import MlflowServer, export_runs
from gpuyard.measure.export.runs import ExportedRun
from gpuyard.measure.kind import HistoryPoint

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_START_SECONDS = 240.0


@contextlib.contextmanager
def serve_reply(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str | None]]]:
    """Reply to every request alike, and yield the address and the Authorization headers received."""
    authorizations: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authorizations.append(self.headers.get("Authorization"))
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
        yield f"127.0.0.1:{server.server_port}", authorizations
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "fragment"),
    [
        (200, b"<html>", "<html>"),
        (200, b"[]", "[]"),
        (200, b"{}", "'gpuyard'"),
        (200, b'{"experiment": 7}', "experiment"),
        (200, b"[" * 200_000, "[[[["),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no\\u001b[2J"}', "PERMISSION_DENIED: no�[2J"),
        (500, b"", "500"),
        (302, b"", "302"),
        (200, b'{"experiment": {"experiment_id": "1", "lifecycle_stage": "deleted"}}', "--experiment"),
    ],
)  # fmt: skip
def test_a_server_that_is_not_mlflow_is_an_error(
    status: int, body: bytes, fragment: str, exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with (
        serve_reply(status, body, Location="http://192.0.2.1/") as (address, authorizations),
        pytest.raises(GpuyardError) as raised,
    ):
        MlflowServer.from_url(f"http://{address}").export(exported, "gpuyard")
    assert fragment in str(raised.value)
    assert len(str(raised.value)) < 1000
    assert len(authorizations) == 1


def test_an_unreachable_server_is_an_error_that_names_it(
    exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(GpuyardError, match=f"^{url}: .*Connection refused"):
            MlflowServer.from_url(url).export(exported, "gpuyard")


@pytest.mark.parametrize(
    ("credentials", "environment", "authorization"),
    [
        ("me:pass%40word@", {}, "Basic bWU6cGFzc0B3b3Jk"),
        ("", {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "p"}, "Basic bWU6cA=="),
        ("", {"MLFLOW_TRACKING_TOKEN": "t"}, "Bearer t"),
        ("", {}, None),
    ],
)
def test_a_password_goes_only_to_the_server(
    credentials: str,
    environment: dict[str, str],
    authorization: str | None,
    exported: list[ExportedRun],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with serve_reply(401, b"") as (address, authorizations):
        server = MlflowServer.from_url(f"http://{credentials}{address}/")
        with pytest.raises(GpuyardError) as raised:
            server.export(exported, "gpuyard")
    assert authorizations == [authorization]
    assert server.url == f"http://{address}"
    assert "word" not in str(raised.value) + repr(server)
    assert dict(os.environ) == before
    with pytest.raises(UserMistake) as refused:
        MlflowServer.from_url("ftp://me:password@host")
    assert "password" not in str(refused.value)


def test_a_missing_client_is_an_error_with_the_pip_command(
    exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingRequirement, match=r"pip install 'gpuyard\[mlflow\]'"):
        MlflowServer.from_url("http://127.0.0.1:1").export(exported, "gpuyard")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "MlflowClient":
    """MLflow's own client on MLflow's own store in a directory."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"file:{tmp_path}")


def find_runs(client: "MlflowClient", experiment: str) -> "dict[str, Run]":
    stored = client.get_experiment_by_name(experiment)
    assert stored is not None
    return {str(run.info.run_name): run for run in client.search_runs([stored.experiment_id])}


def check_every_run_is_written_once(client: "MlflowClient", exported: list[ExportedRun]) -> None:
    assert export_runs(client, exported, "digits") == (2, 0)
    assert export_runs(client, exported, "digits") == (0, 2)
    runs = find_runs(client, "digits")
    assert sorted(runs) == sorted(run.name for run in exported)
    run = runs[exported[1].name]
    assert run.info.status == "FINISHED"
    assert run.info.end_time is not None
    assert run.info.end_time - run.info.start_time == 50_000
    assert run.data.params["workers"] == "2"
    assert run.data.metrics["samples_per_second"] == pytest.approx(640)
    history = client.get_metric_history(run.info.run_id, "window/loss")
    assert [(metric.step, metric.value) for metric in history] == [
        (50, 2.5), (100, 1.25), (150, 2.5 / 3), (200, 0.625), (250, 0.5),
    ]  # fmt: skip


def check_an_interrupted_export_is_completed(
    client: "MlflowClient", exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise GpuyardError("the network is unreachable")

    with monkeypatch.context() as patch, pytest.raises(GpuyardError, match="unreachable"):
        patch.setattr(client, "set_terminated", fail)
        export_runs(client, exported, "interrupted")
    assert [run.info.status for run in find_runs(client, "interrupted").values()] == ["RUNNING"]
    assert export_runs(client, exported, "interrupted") == (2, 0)
    statuses = [run.info.status for run in find_runs(client, "interrupted").values()]
    assert statuses == ["FINISHED"] * 2


def test_every_run_is_written_once_with_all_figures(
    client: "MlflowClient", exported: list[ExportedRun]
) -> None:
    check_every_run_is_written_once(client, exported)


def test_an_interrupted_export_is_completed(
    client: "MlflowClient", exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_an_interrupted_export_is_completed(client, exported, monkeypatch)


def test_thousands_of_figures_are_written_in_batches(
    client: "MlflowClient", exported: list[ExportedRun]
) -> None:
    history = tuple(HistoryPoint(step, 1.0, {"loss": 1.0 / step}) for step in range(1, 2501))
    run = ExportedRun(**{**vars(exported[0]), "history": history})
    assert export_runs(client, [run], "long") == (1, 0)
    (written,) = find_runs(client, "long").values()
    assert len(client.get_metric_history(written.info.run_id, "window/loss")) == 2500


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("flask", reason="mlflow-skinny has no server")
    place = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{place}/runs.sqlite", "--artifacts-destination", str(place / "artifacts"),
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with (place / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=place, env=environment, stdout=log, stderr=log, start_new_session=True
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


@pytest.mark.soak
def test_a_real_server_has_every_run_once_and_completes_interrupted_exports(
    mlflow_server: str, exported: list[ExportedRun], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=mlflow_server)
    check_every_run_is_written_once(client, exported)
    check_an_interrupted_export_is_completed(client, exported, monkeypatch)
    capfd.readouterr()
    assert MlflowServer.from_url(mlflow_server).export(exported, "digits again") == (2, 0)
    assert capfd.readouterr().out == ""
