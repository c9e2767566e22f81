"""Labs are made for real; where that is not possible, the tests that need one are skipped with the reason."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard import lab

NAMESPACES = Path("/var/run/netns")


@pytest.fixture
def foreign(can_make_labs: None) -> Iterator[Path]:
    """A namespace that looks like a lab's and is not ours."""
    from pyroute2 import netns

    name = "gpuyard-lab-node0"
    netns.create(name)
    yield NAMESPACES / name
    netns.remove(name)


def run_on(node: lab.Node, *argv: str) -> str:
    done = subprocess.run(node.command(argv), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def namespaces() -> set[str]:
    """Return those of all labs on this machine; other programs may create and remove their own beside the tests."""
    return {path.name for path in NAMESPACES.glob("gpuyard-*")}
