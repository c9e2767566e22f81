"""Jobs on the page: the list, a job's page, its live log, and whose logs one may read."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.other_users import public_gpuyard
from tests.web.conftest import Serve, Site

NOBODY = 65_534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("curl") is None, reason="acts as several users: root and curl"
)
TRAINING = """
import time, gpuyard as gy
for step in range(40):
    time.sleep(0.05)
    gy.step(samples=8, loss=2.0 / (step + 1))
    print("step", step, "\\x1b[31mred\\x1b[0m", flush=True)
"""


def _wait_until(site: Site, handle: str, state: str) -> None:
    deadline = time.monotonic() + 90
    while site.get(f"/job.json?handle={handle}").json()["state"] != state:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_a_jobs_page_and_its_log(serve: Serve, empty_share: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    handle = cli(
        "submit", "--name", "digits", "--", sys.executable, str(tmp_path / "train.py")
    ).stdout
    handle = handle.strip()
    site = serve()
    with contextlib.closing(site.connect()) as connection:
        connection.request("GET", f"/events/log?handle={handle}")
        stream = connection.getresponse()
        lines = []
        while (line := stream.readline().decode()) and "event: end" not in line:
            lines.append(line)
    text = "".join(json.loads(line[6:]) for line in lines if line.startswith('data: "'))
    assert "step 39 red" in text, "the colors of a terminal are removed"
    _wait_until(site, handle, "succeeded")
    listed = site.get("/jobs.json?search=DIGITS&state=succeeded").json()["jobs"]
    assert [job["handle"] for job in listed] == [handle]
    assert site.get("/jobs.json?state=failed").json()["jobs"] == []
    page = site.get(f"/job?handle={handle}").text
    assert "chart-speed" in page
    assert "chart-loss" in page
    assert "/act/retry" in page
    log = site.get(f"/job/log.txt?handle={handle}&search=STEP+7").text
    assert log == "step 7 red\n"
    assert json.loads(cli("status", handle, "--json").stdout).items() <= (
        site.get(f"/job.json?handle={handle}").json().items()
    )


@needs_root
def test_users_act_as_themselves_and_see_only_their_own_logs(
    serve: Serve, empty_share: Path, tmp_path: Path
) -> None:
    """Root serves a Unix socket; nobody submits through it, and may not read root's jobs."""
    install = public_gpuyard()
    try:
        subprocess.run(
            (install.python, "-c", "import fastapi, uvicorn"),
            env={**os.environ, **install.environment}, check=True, capture_output=True,
        )  # fmt: skip
    except subprocess.CalledProcessError:
        pytest.skip("FastAPI cannot be imported by every user here")
    path = Path(f"/tmp/gpuyard-jobs-{os.getpid()}.socket")  # noqa: S108 - others must reach it
    site = serve("--socket", str(path), python=install.python, **install.environment)
    handle = site.act("submit", command="echo of-root", count="1")
    assert handle.status == 200, handle.text

    def ask(*words: str) -> str:
        return subprocess.run(
            ("curl", "-s", "--unix-socket", path, *words),
            user=NOBODY, group=NOBODY, extra_groups=(), capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    refused = json.loads(ask("http://localhost/job.json?handle=local://1&user=root"))
    assert "only admins" in refused["error"]
    refused = ask(
        "-H", "Accept: application/json", "http://localhost/job/log.txt?handle=local://1&user=root"
    )
    assert "only admins" in refused
    # the command runs as nobody, who has no home to keep jobs in
    page = ask("http://localhost/act/release?lease=ffffffff")
    csrf = page.partition('name="csrf" value="')[2][:64]
    done = json.loads(
        ask(
            "-H",
            "Accept: application/json",
            "-d",
            f"csrf={csrf}&lease=ffffffff",
            "http://localhost/act/release",
        )
    )
    assert done["status"] != 0
    assert done["command"] == "gpuyard release ffffffff"
