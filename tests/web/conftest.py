"""A real `gpuyard serve` process, and a client that speaks HTTP to it."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.web.seed import seed_share

Serve = Callable[..., "Site"]
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@dataclass
class Reply:
    """A response that was read to its end."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Site:
    """A running server."""

    address: str
    process: "subprocess.Popen[str]"
    headers: dict[str, str] = field(default_factory=dict)

    def connect(self) -> http.client.HTTPConnection:
        if self.address.startswith("unix:"):
            return _UnixConnection(self.address.removeprefix("unix:"))
        return http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> Reply:
        with contextlib.closing(self.connect()) as connection:
            named = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.request(method, path, body, {**self.headers, **named})
            response = connection.getresponse()
            return Reply(
                response.status,
                {key.lower(): value for key, value in response.getheaders()},
                response.read().decode(),
            )

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Reply:
        form = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return self.request("POST", path, urlencode(fields), **form)

    def act(self, action: str, **fields: str) -> Reply:
        """Confirm an action as a browser does: open its page, and send its form."""
        page = self.get(f"/act/{action}?{urlencode(fields)}")
        assert page.status == 200, page.text
        csrf = _CSRF.search(page.text)
        assert csrf is not None, page.text
        return self.post(f"/act/{action}", {**fields, "csrf": csrf[1]})

    def stop(self) -> str:
        """Stop the server, and return what it wrote to stderr."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[1]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start `gpuyard serve` on a free port with further options."""
    sites: list[Site] = []

    def start(*options: str, python: str = sys.executable, **environment: str) -> Site:
        where = () if "--socket" in options else ("--port", "0")
        process = subprocess.Popen(
            (python, "-m", "gpuyard", "serve", *where, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        site = Site(address, process)
        sites.append(site)
        assert address, site.stop()
        return site

    yield start
    for site in sites:
        site.stop()


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A share with 8 test GPUs, of which alice uses four, bob leaves two idle, and carol waits for all."""
    directory = tmp_path / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory))
    seed_share(directory)
    return directory


@pytest.fixture
def empty_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A share with 4 free test GPUs."""
    from gpuyard.share.setup import set_up

    directory = tmp_path / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory))
    set_up(directory, fake_gpus=4, grace_seconds=0.5)
    return directory
