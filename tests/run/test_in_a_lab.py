"""Ranks on the nodes of a real lab, two on each."""

import pytest

from gpuyard.lab import plan_lab
from gpuyard.run.launch import Launcher
from gpuyard.run.places import LabNodes
from tests.run.sum_ranks import summed

pytestmark = pytest.mark.usefixtures("can_make_labs")


@pytest.mark.soak  # what trains in a lab exchanges, too: measure/training/test_in_a_lab.py
@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_two_ranks_on_each_of_two_nodes_exchange(launcher: Launcher) -> None:
    plan = plan_lab(2, "1 Gbit/s", name="test-two-a-node")
    with LabNodes(plan, ranks_per_node=2).up() as place:
        said = summed(place, 4, launcher)
    assert said.total == 0b1111
    # the host name of a node is its address
    assert [(seat["hostname"], seat["LOCAL_RANK"]) for seat in said.seats] == [
        ("10.77.0.1", "0"),
        ("10.77.0.1", "1"),
        ("10.77.0.2", "0"),
        ("10.77.0.2", "1"),
    ]
