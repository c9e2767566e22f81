"""A server that answers with junk, for ever or from elsewhere is a ValueError or a refusal, never more."""

import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gpuyard.deploy.clouds.lambda_cloud import LambdaCloud
from gpuyard.errors import GpuyardError
from gpuyard.measure.export.mlflow import MlflowServer
from gpuyard.share.notebook.jupyter import JupyterServer
from gpuyard.web_client import opener, read_json

DEEP = b"[" * 200_000


class Junk(BaseHTTPRequestHandler):
    """Its answer is what the path names."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if "redirect" in self.path:
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
        elif "no-http" in self.path:
            self.wfile.write(b"not http at all\r\n\r\n")
        else:
            body = DEEP if "deep" in self.path else b'"' + b"x" * 2_000_000 + b'"'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name that the standard library asks for

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def junk() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Junk) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def address(server: HTTPServer, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


@pytest.mark.parametrize("path", ["deep", "long"])
def test_what_is_nested_or_long_beyond_measure_is_no_answer(junk: HTTPServer, path: str) -> None:
    with opener(proxies=False).open(address(junk, path)) as answer, pytest.raises(ValueError):
        read_json(answer, 1_000_000)


def test_a_redirect_is_not_followed(junk: HTTPServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="302"):
        opener(proxies=False).open(address(junk, "redirect"))
    assert junk.asked == ["/redirect"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["deep", "redirect", "no-http"])
def test_those_who_ask_say_so_in_a_sentence(
    junk: HTTPServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", address(junk, path))
    monkeypatch.setenv("LAMBDA_API_KEY", "k")
    monkeypatch.setenv("GPUYARD_LAMBDA_HASTE", "0.0001")
    with pytest.raises(GpuyardError, match="Lambda Cloud"):
        LambdaCloud.of_user().instances()
    with pytest.raises(GpuyardError, match="MLflow"):
        MlflowServer(address(junk, path), {})._ask("GET", "x")


@pytest.mark.parametrize("junk_path", ["deep", "long", "no-http"])
def test_what_poses_as_a_notebook_is_none(
    junk: HTTPServer, monkeypatch: pytest.MonkeyPatch, junk_path: str
) -> None:
    server = JupyterServer(junk.server_port, "token")
    assert server._get(f"/{junk_path}", "token") is None
