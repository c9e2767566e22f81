"""The verdict on a real job of two ranks, of which one waits for its input."""

import json
import sys
from pathlib import Path

import pytest

from gpuyard.share.setup import set_up
from tests.jobs.engines.local.conftest import Jobs, until

RANK = """
import os, sys, time, gpuyard
rank = int(sys.argv[1])
os.environ["RANK"], os.environ["WORLD_SIZE"] = sys.argv[1], "2"
def load():
    while True:
        time.sleep(0.05 if rank else 0.0)
        yield 1
for batch in gpuyard.batches(load()):
    time.sleep(0.01)
    with gpuyard.exchange():
        time.sleep(0.001 if rank else 0.051)  # the other rank waits
    gpuyard.step(samples=8)
"""


def test_status_and_watch_name_the_rank_that_waits(jobs: Jobs, tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(RANK, encoding="utf-8")
    command = f"{sys.executable} {program} 1 & exec {sys.executable} {program} 0"
    handle = jobs.submit("--", "sh", "-c", command)
    try:
        until(lambda: "rank 1" in jobs.status(handle)["verdict"], "a verdict on both ranks")
        first = jobs.cli("watch", handle).stdout.splitlines()[0]
        assert "rank 1" in first
        assert "input" in first
    finally:
        jobs.cli("cancel", handle)


def test_status_compares_the_speed_with_the_prediction(
    jobs: Jobs, home: Path, tmp_path: Path
) -> None:
    set_up(home / "share", fake_gpus=4, topology="workstation", grace_seconds=0.5)
    program = tmp_path / "loop.py"
    program.write_text(
        "import time, gpuyard\nwhile True:\n    time.sleep(0.01)\n    gpuyard.step(samples=0.5)\n",
        encoding="utf-8",
    )
    handle = jobs.submit("--workload", "resnet50", "--", sys.executable, str(program))
    try:
        until(lambda: jobs.status(handle)["verdict"].startswith("Slow"), "a verdict")
        document = jobs.status(handle)
        expected = document["expected_speed"]
        assert document["samples_per_second"] < expected["low"] < expected["high"]
        assert "a day" in document["verdict"]
        assert "predicted" in jobs.cli("status", handle).stdout
        watched = json.loads(jobs.cli("watch", handle, "--json").stdout)
        assert watched["expected_low_samples_per_second"] == pytest.approx(expected["low"])
    finally:
        jobs.cli("cancel", handle)
