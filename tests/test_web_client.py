"""Clients reject responses that are malformed, too long, too slow, or redirected."""

import contextlib
import json
import socketserver
import threading
import time
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gpuyard.catalog import price_update
from gpuyard.deploy.clouds.lambda_cloud import LambdaCloud
from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.jobs.engines.kubernetes import cluster as clusters
from gpuyard.jobs.engines.kubernetes.kinds.base import Resource
from gpuyard.measure.export import mlflow
from gpuyard.share.notebook.jupyter import JupyterServer
from gpuyard.web_client import build_opener, read_json
from tests.conftest import Cli

DEEP = b"[" * 200_000


class Trickle(socketserver.StreamRequestHandler):
    """Send one byte after the other: of the headers, or of the body after complete headers."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        with contextlib.suppress(OSError):
            if self.server.complete_headers:  # type: ignore[attr-defined]
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n")
            else:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                self.wfile.write(b"x")
                time.sleep(0.05)


@pytest.fixture(params=["headers", "body"])
def trickle(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server whose responses take forever."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Trickle) as server:
        server.daemon_threads = True
        server.complete_headers = request.param == "body"  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Junk(BaseHTTPRequestHandler):
    """Respond with the kind of junk that the path names."""

    def do_GET(self) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]
        if "redirect" in self.path:
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
        elif "not-http" in self.path:
            self.wfile.write(b"not http at all\r\n\r\n")
        else:
            body = DEEP if "deep" in self.path else b'"' + b"x" * 2_000_000 + b'"'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the standard library's name

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def junk() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Junk) as server:
        server.requests = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def build_url(server: HTTPServer, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


@pytest.mark.parametrize("path", ["deep", "long"])
def test_a_response_that_is_too_deep_or_too_long_is_refused(junk: HTTPServer, path: str) -> None:
    with (
        build_opener(proxies=False).open(build_url(junk, path)) as response,
        pytest.raises(ValueError),
    ):
        read_json(response, 1_000_000)


def test_a_redirect_is_not_followed(junk: HTTPServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="302"):
        build_opener(proxies=False).open(build_url(junk, "redirect"))
    assert junk.requests == ["/redirect"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["deep", "redirect", "not-http"])
def test_clients_name_the_server_in_the_error(
    junk: HTTPServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", build_url(junk, path))
    monkeypatch.setenv("LAMBDA_API_KEY", "k")
    monkeypatch.setenv("GPUYARD_LAMBDA_WAIT_SCALE", "0.0001")
    with pytest.raises(GpuyardError, match="Lambda Cloud"):
        LambdaCloud.from_environment().instances()


@pytest.mark.parametrize("junk_path", ["deep", "long", "not-http"])
def test_a_server_that_is_not_jupyter_is_refused(tmp_path: Path, junk_path: str) -> None:
    path = tmp_path / "s"
    with socketserver.ThreadingUnixStreamServer(str(path), Junk) as server:
        server.requests = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert JupyterServer(path, "token")._get(f"/{junk_path}", "token") is None
        assert server.requests == [f"/{junk_path}"]  # type: ignore[attr-defined]
        server.shutdown()


def test_a_download_that_takes_forever_ends(
    trickle: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(price_update, "_MAX_DOWNLOAD_SECONDS", 0.5)
    error_output = cli("prices", "update", "--from", f"{trickle}/p.csv", status=1).stderr
    assert f"{trickle}/p.csv" in error_output and "within 0.5 s" in error_output


def test_a_cloud_that_takes_forever_to_answer_is_reported_once(
    trickle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", trickle)
    monkeypatch.setenv("LAMBDA_API_KEY", "k")
    monkeypatch.setenv("GPUYARD_LAMBDA_WAIT_SCALE", "0.0001")
    with pytest.raises(GpuyardError, match=r"Lambda Cloud .* within 2 s"):
        LambdaCloud.from_environment().instances()


def test_a_kubernetes_server_that_takes_forever_to_answer_is_reported(
    trickle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": trickle}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(clusters, "CALL_SECONDS", (0.5, 0.5))
    cluster = clusters.KubernetesCluster("c")
    with pytest.raises(NoResponse, match="did not answer"):
        cluster.list_pods("default", "")
    with pytest.raises(NoResponse, match="did not answer"):
        cluster.get(Resource("batch", "v1", "jobs", "Job"), "default", "j")


def test_an_mlflow_server_that_takes_forever_to_answer_is_reported(
    trickle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow, "_MAX_SECONDS", 0.5)
    with pytest.raises(GpuyardError, match=r"within 0\.5 s"):
        mlflow.MlflowServer.from_url(trickle).export([], "e")
