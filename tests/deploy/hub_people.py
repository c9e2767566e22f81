"""Two users of a JupyterHub, tested on its own machine: what each of them can and cannot access.

The machine may not have these tests, so this file is sent to it.
"""

import http.cookiejar
import json
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import psutil

NAMES = ("ada", "bob")
EXPECTED = {
    "stranger": 403,
    "guessed": 403,
    "in": [200, 200],
    "notebooks": [200, 200],
    "other's notebook": 403,
    "other's file": 403,
    "users": ["ada", "bob"],
    "other's file on the disk": 1,
}
_SECONDS = 120.0


def processes_of(names: tuple[str, ...]) -> dict[str, str]:
    """Return the command lines of notebook servers by user."""
    servers = {}
    for process in psutil.process_iter(["username", "cmdline"]):
        if process.info["username"] in names:
            servers[process.info["username"]] = " ".join(process.info["cmdline"] or ())
    return servers


class Person:
    """A user's browser session."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self._cookies)
        )

    def get(self, path: str) -> tuple[int, bytes]:
        return self._ask(path)

    def log_in(self, name: str, token: str) -> int:
        self.get("/hub/login")
        form = {"username": name, "password": token, "_xsrf": self._xsrf()}
        return self._ask("/hub/login?next=/hub/home", urllib.parse.urlencode(form).encode())[0]

    def start_notebook(self, name: str) -> int:
        headers = {
            "Content-Type": "application/json",
            "X-XSRFToken": self._xsrf(),
            "Referer": f"{self.base}/hub/home",
        }
        return self._ask(f"/hub/api/users/{name}/server", b"{}", headers)[0]

    def _xsrf(self) -> str:
        return next(c.value or "" for c in self._cookies if (c.name, c.path) == ("_xsrf", "/hub/"))

    def _ask(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        request = urllib.request.Request(self.base + path, body, headers or {})  # noqa: S310
        try:
            with self._opener.open(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


def probe_hub(base: str) -> dict[str, object]:
    """Probe the hub on its machine as root, which can read all tokens."""
    tokens = {name: Path(f"/home/{name}/.jupyter_token").read_text().strip() for name in NAMES}
    stranger, ada, bob = Person(base), Person(base), Person(base)
    results: dict[str, object] = {
        "stranger": stranger.get("/hub/api/user")[0],
        "guessed": stranger.log_in("ada", tokens["bob"]),
        "in": [ada.log_in("ada", tokens["ada"]), bob.log_in("bob", tokens["bob"])],
        "notebooks": [_start_and_wait(ada, "ada"), _start_and_wait(bob, "bob")],
        "users": sorted(processes_of(NAMES)),
    }
    Path("/home/ada/own.ipynb").write_text("{}")
    results["other's notebook"] = bob.get("/user/ada/lab")[0]
    results["other's file"] = bob.get("/user/ada/api/contents/own.ipynb")[0]
    read = ("su", "bob", "-c", "cat /home/ada/own.ipynb")
    done = subprocess.run(read, capture_output=True, check=False)
    results["other's file on the disk"] = done.returncode
    return results


def _start_and_wait(person: Person, name: str) -> int:
    person.start_notebook(name)
    end = time.monotonic() + _SECONDS
    while (status := person.get(f"/user/{name}/lab")[0]) != 200 and time.monotonic() < end:
        time.sleep(1)
    return status


def probe_command() -> str:
    """Return a shell command that runs the probe and prints the results as JSON."""
    text = Path(__file__).read_text()
    return f"{sys.prefix}/bin/python -P - << 'END'\n{text}\nEND"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe_hub("http://127.0.0.1:8000")))
