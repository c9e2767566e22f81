"""Labs are made for real; where that is not possible, the tests that need one are skipped with the reason."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.errors import MissingRequirement

NAMESPACES = Path("/var/run/netns")


@pytest.fixture
def can_make_labs(home: Path) -> Iterator[None]:
    """For tests of real labs: whatever a failing test leaves behind is removed."""
    try:
        lab.check_can_make_labs()
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    yield
    lab.remove_orphans()
    for known, _ in lab.labs():
        lab.down(known.plan.name)


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
    """All that the machine has; other labs may come and go beside the tests."""
    return {path.name for path in NAMESPACES.iterdir()} if NAMESPACES.exists() else set()
