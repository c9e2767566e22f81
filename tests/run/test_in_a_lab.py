"""Ranks on the nodes of a real lab, two on each."""

import pytest

from gpuyard.choices import Launcher
from gpuyard.lab import plan_lab
from gpuyard.run.places import LabNodes
from tests.run.sum_ranks import sum_ranks

pytestmark = pytest.mark.usefixtures("can_make_labs")


@pytest.mark.soak  # measure/training/test_in_a_lab.py covers communication in a lab as well.
@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_two_ranks_on_each_of_two_nodes_communicate(launcher: Launcher) -> None:
    plan = plan_lab(2, "1 Gbit/s", name="test-two-a-node")
    with LabNodes(plan, ranks_per_node=2).up() as place:
        result = sum_ranks(place, 4, launcher)
    assert result.total == 0b1111
    # The host name of a node is its address.
    assert [(rank["hostname"], rank["LOCAL_RANK"]) for rank in result.ranks] == [
        ("10.77.0.1", "0"),
        ("10.77.0.1", "1"),
        ("10.77.0.2", "0"),
        ("10.77.0.2", "1"),
    ]
