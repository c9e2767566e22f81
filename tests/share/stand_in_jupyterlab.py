"""A stand-in for JupyterLab: it accepts the same options and settings, and answers what a test wrote.

In its directory a test may write `activity` (any text: the last activity), `busy` (a kernel is), `open` (no token), and
`slow` (it does not listen as long as this file exists).
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

OPTIONS = dict(word.removeprefix("--ServerApp.").split("=", 1) for word in sys.argv[1:])
DIRECTORY = Path(OPTIONS["root_dir"])


def _token() -> str:
    first = os.environ["JUPYTER_CONFIG_PATH"].split(":")[0]
    settings = json.loads(Path(first, "jupyter_server_config.json").read_text(encoding="utf-8"))
    return str(settings["IdentityProvider"]["token"])


class UnixServer(ThreadingUnixStreamServer):
    """A server on a Unix socket, whose clients have no address."""

    daemon_threads = True


class Answers(BaseHTTPRequestHandler):
    """The part of the API that gpuyard uses."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] != f"token {_token()}" and not _has("open"):
            self.send_error(403)
            return
        activity = DIRECTORY / "activity"
        state = "busy" if _has("busy") else "idle"
        output = {
            "/api/status": {"last_activity": activity.read_text() if activity.exists() else ""},
            "/api/kernels": [{"execution_state": state}],
        }[self.path.partition("?")[0]]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(output).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _has(name: str) -> bool:
    return (DIRECTORY / name).exists()


if __name__ == "__main__":
    environment = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "GPUYARD_LEASE")}
    (DIRECTORY / "seen.json").write_text(
        json.dumps({**environment, "argv": sys.argv}), encoding="utf-8"
    )
    while _has("slow"):
        time.sleep(0.05)
    UnixServer(OPTIONS["sock"], Answers).serve_forever()
