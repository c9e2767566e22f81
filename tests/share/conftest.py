"""A share with test GPUs, and processes that lease from it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.share.setup import set_up
from tests.conftest import Cli

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """8 test GPUs of this user's own."""
    directory = tmp_path / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory))
    set_up(directory, fake_gpus=8, grace_seconds=0.5)
    return directory


@pytest.fixture
def start(share: Path) -> Iterator[Start]:
    """Starts `gpuyard ARGUMENTS` in a session of its own; what a failing test leaves is ended."""
    started: list[subprocess.Popen[str]] = []

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
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:  # else its number may be another's by now
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def who(cli: Cli, share: Path) -> Callable[[], dict[str, Any]]:
    """What `gpuyard who --json` says."""
    return lambda: dict(json.loads(cli("who", "--json").stdout))


@pytest.fixture
def usage(share: Path) -> Callable[[], list[dict[str, Any]]]:
    """The history of leases."""
    from gpuyard.share.store.broker import Broker
    from gpuyard.share.store.clock import Clock
    from gpuyard.share.watch.usage import usage_document

    def read() -> list[dict[str, Any]]:
        broker = Broker(share)
        broker.state()
        found = list(usage_document(broker.history(), Clock(), None)["leases"])
        broker.close()
        return found

    return read


def holders(said: dict[str, Any]) -> dict[int, list[str]]:
    """GPU → the ids of its leases, where it has any."""
    return {
        gpu["index"]: [lease["id"] for lease in gpu["leases"]]
        for gpu in said["gpus"]
        if gpu["leases"]
    }


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes users or mounts, which needs root")
