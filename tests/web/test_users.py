"""Several Unix users on one page: root serves a socket, and everyone acts as themselves and sees only their own jobs."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.conftest import USERS
from tests.other_users import public_gpuyard
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server
from tests.web.conftest import Serve
from tests.web.seed import write_readings

__all__ = ["accounts", "server"]
pytestmark = [
    needs_root,
    USERS,
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
]


@dataclass
class Visitor:
    """A user who asks through the socket of a server that root runs."""

    user: str
    socket: Path

    def get(self, path: str, *options: str) -> str:
        return subprocess.run(
            ("curl", "-s", "--unix-socket", self.socket, *options, f"http://localhost{path}"),
            user=self.user, group=self.user, extra_groups=(), capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    def read(self, path: str, **query: str) -> Any:
        return json.loads(self.get(f"{path}?{urlencode(query)}", "-H", "Accept: application/json"))

    def act(self, action: str, **fields: str) -> Any:
        """Confirm an action as a browser does: open its page, and send its form."""
        page = self.get(f"/act/{action}?{urlencode(fields)}")
        csrf = page.partition('name="csrf" value="')[2][:64]
        form = urlencode({**fields, "csrf": csrf})
        return json.loads(
            self.get(f"/act/{action}", "-H", "Accept: application/json", "--data", form)
        )


@pytest.fixture
def visitors(server: Server, serve: Serve) -> Iterator[tuple[Visitor, ...]]:
    """Two users and an admin, with homes."""
    install = public_gpuyard("fastapi", "uvicorn")
    homes = [Path("/home") / user for user in server.users]
    for home, user in zip(homes, server.users, strict=True):
        home.mkdir(mode=0o700, parents=True)
        shutil.chown(home, user, user)
    path = server.directory.parent / "web.socket"
    variables = {"GPUYARD_SHARE_DIR": str(server.directory), **install.environment}
    serve("--socket", str(path), python=install.python, **variables)
    visitors = tuple(Visitor(user, path) for user in server.users)
    yield visitors
    for visitor in visitors:
        for job in visitor.read("/jobs.json", ended="0")["jobs"]:
            visitor.act("cancel", job=job["handle"])
    for home in homes:
        shutil.rmtree(home)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_users_run_jobs_as_themselves_and_read_only_their_own(
    server: Server, visitors: tuple[Visitor, ...]
) -> None:
    first, second, admin = visitors
    done = first.act("submit", command="sh -c 'id -un; exec sleep 600'", count="1", name="held")
    assert done["status"] == 0, done
    handle = done["output"].strip()
    assert handle == "local://1"

    def state(visitor: Visitor, **query: str) -> str:
        return str(visitor.read("/job.json", handle=handle, **query).get("state"))

    _wait_for(lambda: state(first) == "running")
    _wait_for(lambda: first.get(f"/job/log.txt?handle={handle}") == f"{first.user}\n")
    held = [lease for gpu in first.read("/now.json")["sources"][0]["share"]["gpus"] for lease in gpu["leases"]]  # fmt: skip
    assert [lease["user"] for lease in held] == [first.user]
    write_readings(server.directory, 8, busy=8, idle=0)
    _wait_for(lambda: bool(first.read("/job.json", handle=handle)["gpu_samples"]))
    page = first.get(f"/job?handle={handle}")
    assert "Outlook" in page, "one's own page has everything, although root serves it"
    assert "chart-utilization" in page

    # the handle of another user names nothing of one's own
    assert second.read("/jobs.json")["jobs"] == []
    assert "not found" in second.read("/job.json", handle=handle)["error"]
    for path in ("/jobs.json", "/job.json", "/job/log.txt", "/events/log"):
        refused = second.read(path, handle=handle, user=first.user)
        assert "only admins" in refused["error"], path
    assert second.act("cancel", job=handle)["status"] != 0
    assert second.act("release", lease=held[0]["id"])["status"] != 0
    assert state(first) == "running"

    assert state(admin, user=first.user) == "running"
    log = admin.get(f"/job/log.txt?handle={handle}&user={first.user}")
    assert log == f"{first.user}\n"
    assert first.user in admin.get(f"/job?handle={handle}&user={first.user}")

    assert first.act("cancel", job=handle)["status"] == 0
    _wait_for(lambda: state(first) == "cancelled")
    again = first.act("retry", job=handle)
    assert again["status"] == 0, again
    assert again["output"].strip().endswith("local://2")
    files = Path("/home") / first.user / ".local/share/gpuyard"
    assert files.stat().st_uid == os.stat(f"/home/{first.user}").st_uid  # noqa: PTH116


def test_users_lease_as_themselves(visitors: tuple[Visitor, ...]) -> None:
    first, second, _ = visitors
    assert first.act("lease", count="2", time="1h", command="sleep 300")["status"] == 0

    def leases() -> list[tuple[str, str]]:
        gpus = second.read("/now.json")["sources"][0]["share"]["gpus"]
        return [(lease["user"], lease["id"]) for gpu in gpus for lease in gpu["leases"]]

    _wait_for(lambda: len(leases()) == 2)
    ((user, lease),) = set(leases())
    assert user == first.user
    assert second.act("release", lease=lease)["status"] != 0
    assert first.act("release", lease=lease)["status"] == 0
    _wait_for(lambda: not leases())
