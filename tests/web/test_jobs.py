"""Jobs on the page: the list, a job's page, its live log, and whose logs one may read."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from gpuyard.share.gpus import FAKE_READINGS
from gpuyard.web.job_log import LogTail
from tests.conftest import Cli
from tests.web.conftest import Serve, Site

TRAINING = """
import time, gpuyard as gy
for step in range(60):
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
    # little memory: otherwise the GPU would be in use without a lease
    reading = {"utilization": 0.83, "memory_used_bytes": 10**9, "power_watts": 610.0}
    (empty_share / FAKE_READINGS).write_text(json.dumps(dict.fromkeys("0123", reading)))
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
    assert "step 59 red" in text, "the colors of a terminal are removed"
    _wait_until(site, handle, "succeeded")
    listed = site.get("/jobs.json?search=DIGITS&state=succeeded").json()["jobs"]
    assert [job["handle"] for job in listed] == [handle]
    assert site.get("/jobs.json?state=failed").json()["jobs"] == []
    page = site.get(f"/job?handle={handle}").text
    assert "chart-speed" in page
    assert "chart-loss" in page
    for name in ("utilization", "memory_used_bytes", "power_watts"):
        assert f"chart-{name}" in page
    samples = site.get(f"/job.json?handle={handle}").json()["gpu_samples"]
    assert len(samples) >= 2
    assert {sample["utilization"] for sample in samples} == {0.83}
    assert "/act/retry" in page
    log = site.get(f"/job/log.txt?handle={handle}&search=STEP+7").text
    assert log == "step 7 red\n"
    assert site.get(f"/job.json?handle={handle}").json()["outlook"] is None, "it has ended"
    assert json.loads(cli("status", handle, "--json").stdout).items() <= (
        site.get(f"/job.json?handle={handle}").json().items()
    )


def test_a_page_gets_only_the_end_of_a_log_that_is_too_fast_for_it() -> None:
    tail = LogTail()
    for number in range(100_000):
        tail.add(f"line {number} ä\n".encode())
    first, *lines = tail.take().splitlines()
    assert "whole log" in first
    assert lines[-1] == "line 99999 ä"
    assert int(lines[0].split()[1]) + len(lines) == 100_000, "no line is missing or broken"
    tail.add("ä".encode()[:1])
    assert tail.take() == ""
    tail.add("ä".encode()[1:])
    assert tail.take() == "ä"
    tail.add(b"")
    assert tail.is_complete


def test_a_long_log_is_sent_in_parts(serve: Serve, empty_share: Path, cli: Cli) -> None:
    script = "print('x' * 3_000_000); print('ä\\r\\nlast')"
    handle = cli("submit", "--", sys.executable, "-c", script).stdout.strip()
    site = serve()
    _wait_until(site, handle, "succeeded")
    reply = site.get(f"/job/log.txt?handle={handle}")
    assert "content-length" not in reply.headers
    assert reply.text.replace("\n", "") == "x" * 3_000_000 + "älast"
    assert site.get(f"/job/log.txt?handle={handle}&search=LAS").text == "last\n"
    assert site.get("/job/log.txt?handle=local://99").status == 400


def test_followers_that_leave_at_once_leave_no_process(
    serve: Serve, empty_share: Path, cli: Cli
) -> None:
    handle = cli("submit", "--", "sleep", "100").stdout.strip()
    site = serve()
    try:
        for attempt in range(24):  # some leave before the log's first event, and some after it
            with contextlib.closing(site.connect()) as connection:
                connection.request("GET", f"/events/log?handle={handle}")
                if attempt % 3:
                    time.sleep(0.05 * (attempt % 3))
                else:
                    connection.getresponse()
        deadline = time.monotonic() + 30
        while _list_followers(handle):
            assert time.monotonic() < deadline, "logs are followed for pages that are closed"
            time.sleep(0.2)
    finally:
        cli("cancel", handle)


def _list_followers(handle: str) -> list[int]:
    command = f"logs\0--follow\0{handle}".encode()
    processes = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = os.environ["GPUYARD_HOME"].encode() in (directory / "environ").read_bytes()
            if is_ours and command in (directory / "cmdline").read_bytes():
                processes.append(int(directory.name))
    return processes
