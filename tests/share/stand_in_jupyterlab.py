"""Stands in for JupyterLab where there is none: takes the same options and settings, and says what a test wrote.

In its directory a test may write `activity` (any text: the last activity), `busy` (a kernel is) and `open` (no token).
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OPTIONS = dict(word.removeprefix("--ServerApp.").split("=", 1) for word in sys.argv[1:])
DIRECTORY = Path(OPTIONS["root_dir"])


def _token() -> str:
    first = os.environ["JUPYTER_CONFIG_PATH"].split(":")[0]
    settings = json.loads(Path(first, "jupyter_server_config.json").read_text(encoding="utf-8"))
    return str(settings["IdentityProvider"]["token"])


class Answers(BaseHTTPRequestHandler):
    """Of its API, what gpuyard asks."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] != f"token {_token()}" and not _has("open"):
            self.send_error(403)
            return
        activity = DIRECTORY / "activity"
        state = "busy" if _has("busy") else "idle"
        said = {
            "/api/status": {"last_activity": activity.read_text() if activity.exists() else ""},
            "/api/kernels": [{"execution_state": state}],
        }[self.path.partition("?")[0]]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _has(name: str) -> bool:
    return (DIRECTORY / name).exists()


if __name__ == "__main__":
    seen = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "GPUYARD_LEASE")}
    (DIRECTORY / "seen.json").write_text(json.dumps({**seen, "argv": sys.argv}), encoding="utf-8")
    ThreadingHTTPServer((OPTIONS["ip"], int(OPTIONS["port"])), Answers).serve_forever()
