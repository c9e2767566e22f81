"""GPUs that somebody uses without a lease come last, and are leased only on request."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.share.conftest import Start
from tests.share.test_watching import on_gpus, stranger

__all__ = ["stranger"]
PRINT = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


@pytest.fixture
def full(share: Path, stranger: "subprocess.Popen[bytes]") -> Iterator[str]:
    """A stranger on all GPUs except the last."""
    on_gpus(share, **{f"gpu{i}": {"pids": [stranger.pid]} for i in range(7)})
    yield str(stranger.pid)


def test_busy_gpus_come_last_and_are_named(full: str, cli: Cli) -> None:
    assert cli("lease", "1", "--now", "--", *PRINT).stdout == "7\n"
    for options in (("2",), ("--gpu-ids", "0"), ("--gpu-ids", "6,7")):
        refused = cli("lease", *options, "--now", "--", "true", status=75).stderr
        assert f"process {full}" in refused and "--even-if-busy" in refused
    leased = cli("lease", "2", "--now", "--even-if-busy", "--", *PRINT)
    assert leased.stdout == "0,7\n" and f"process {full}" in leased.stderr
    alone = cli("lease", "1", "--now", "--even-if-busy", "--", *PRINT)
    assert alone.stdout == "7\n" and alone.stderr == ""


def test_a_request_waits_until_the_stranger_has_left(
    full: str, share: Path, cli: Cli, start: Start
) -> None:
    waiting = start("lease", "8", "--", *PRINT)
    assert waiting.stderr is not None and f"process {full}" in waiting.stderr.readline()
    cli("lease", "1", "--now", "--", "true")  # it does not keep others from an idle GPU
    refused = cli("lease", "8", "--wait", "1s", "--", "true", status=75).stderr
    assert f"process {full}" in refused.splitlines()[-1]
    on_gpus(share)
    assert waiting.communicate(timeout=60)[0] == "0,1,2,3,4,5,6,7\n"


def test_memory_that_no_visible_process_uses_makes_a_gpu_busy(share: Path, cli: Cli) -> None:
    """As with a process in a container, or of a driver that does not report processes."""
    on_gpus(share, gpu0={"memory_used_bytes": 23_000_000_000}, gpu1={"memory_used_bytes": 300_000})
    assert cli("lease", "1", "--now", "--", *PRINT).stdout == "1\n"
    assert "23.0 GB" in cli("lease", "8", "--now", "--", "true", status=75).stderr
