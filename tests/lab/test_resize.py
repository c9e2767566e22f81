"""A lab that is resized: nodes that stay keep their processes, and nothing of the others is left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuyard import lab
from gpuyard.errors import UserMistake
from gpuyard.lab import network
from tests.lab.conftest import namespaces
from tests.lab.test_lab import qdiscs, reach

pytestmark = pytest.mark.usefixtures("can_make_labs")


@contextmanager
def sleeping(node: lab.Node) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        node.command([sys.executable, "-c", "print(flush=True); input()"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_nodes_that_stay_keep_their_processes_and_network() -> None:
    before = namespaces()
    made = lab.up(lab.plan_lab(3, "1Gbit"))
    with sleeping(made.nodes[0]) as stays, sleeping(made.nodes[2]) as goes:
        smaller = lab.resize("lab", 2, 12.5e6)
        assert smaller.nodes[0].namespace == made.nodes[0].namespace
        assert goes.wait(20) != 0
        assert len(namespaces() - before) == 3
        assert qdiscs(smaller.nodes[0]) == [("tbf", 12_500_000)]
        larger = lab.resize("lab", 4, 12.5e6)
        assert [node.address for node in larger.nodes] == [f"10.77.0.{i}" for i in (1, 2, 3, 4)]
        assert reach(larger.nodes[0], larger.nodes[3]) == larger.nodes[0].address
        alone = lab.resize("lab", 1, 12.5e6)
        assert stays.poll() is None
        assert os.sched_getaffinity(stays.pid) == set(alone.nodes[0].cores)
    assert lab.find("lab") == alone
    lab.down("lab")
    assert namespaces() <= before


def test_a_resize_that_was_killed_can_be_repeated_or_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = namespaces()
    lab.up(lab.plan_lab(2, "1Gbit"))

    def killed(*_: object) -> None:
        raise SystemExit

    for repeat in (True, False):
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(network, "_create_node", killed)
            lab.resize("lab", 3, 125e6)
        assert len(lab.find("lab").nodes) == 2
        if repeat:
            made = lab.resize("lab", 3, 125e6)
            assert reach(made.nodes[2], made.nodes[0]) == made.nodes[2].address
            lab.resize("lab", 2, 125e6)
    lab.down("lab")
    assert namespaces() <= before


def test_a_lab_with_racks_stays_as_it_is() -> None:
    lab.up(lab.plan_lab(4, "1Gbit", racks=2))
    with pytest.raises(UserMistake, match="2 racks"):
        lab.resize("lab", 2, 125e6)
    assert len(lab.find("lab").nodes) == 4
