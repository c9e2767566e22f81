"""A share with test GPUs, and processes that lease from it."""

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.setup import set_up
from tests.conftest import Cli

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A personal share with 8 test GPUs."""
    directory = tmp_path / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory))
    set_up(directory, fake_gpus=8, grace_seconds=0.5)
    return directory


@pytest.fixture
def start(share: Path) -> Iterator[Start]:
    """Start `gpuyard ARGUMENTS` in its own session; kill what a failing test leaves behind."""
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            (sys.executable, "-m", "gpuyard", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.poll() is None:  # otherwise, another process may have its PID by now
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def who(cli: Cli, share: Path) -> Callable[[], dict[str, Any]]:
    """Read `gpuyard who --json`."""
    return lambda: dict(json.loads(cli("who", "--json").stdout))


@pytest.fixture
def usage(share: Path) -> Callable[[], list[dict[str, Any]]]:
    """Read the history of leases."""
    from gpuyard.share.client import LocalClient
    from gpuyard.share.clock import Clock
    from gpuyard.share.usage import usage_document

    def read() -> list[dict[str, Any]]:
        client = LocalClient(share)
        leases = list(usage_document(client.history(), Clock(), None)["leases"])
        client.close()
        return leases

    return read


def acting_as(broker: "Broker", caller: "Caller") -> "Broker":
    """Return a broker with the same open store for another caller."""
    other = copy.copy(broker)
    other.caller = caller
    return other


def holders(output: dict[str, Any]) -> dict[int, list[str]]:
    """Return the IDs of the leases of each leased GPU."""
    return {
        gpu["index"]: [lease["id"] for lease in gpu["leases"]]
        for gpu in output["gpus"]
        if gpu["leases"]
    }


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes users or mounts, which needs root")
