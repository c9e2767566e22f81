"""A lab on this machine as the place of a deployment: whose it is, and what a killed run has left of it."""

from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets import TARGETS
from gpuyard.errors import GpuyardError

LAB = TARGETS["lab"]


def names() -> set[str]:
    return {known.plan.name for known, _ in lab.labs()}


@pytest.fixture
def state(can_make_labs: None) -> StateDirectory:
    del can_make_labs
    made = StateDirectory("pair")
    made.path.mkdir(parents=True)
    return made


def test_a_lab_of_somebody_else_is_neither_taken_nor_removed(state: StateDirectory) -> None:
    lab.up(lab.plan_lab(2, "1 Gbit/s", name="pair"))
    with pytest.raises(GpuyardError, match="a lab called 'pair' already that is not"):
        LAB.claim(state)
    assert LAB.standing(state) == []
    assert LAB.sweep(state) == []
    assert names() == {"pair"}


def test_what_a_killed_run_made_before_terraform_wrote_it_down_is_seen_and_goes(
    state: StateDirectory,
) -> None:
    LAB.claim(state)
    lab.up(lab.plan_lab(2, "1 Gbit/s", name="pair"))
    _opened_for_its_lock(state.terraform)
    assert LAB.standing(state) == ["lab pair"]
    LAB.claim(state)
    assert names() == set()
    lab.up(lab.plan_lab(2, "1 Gbit/s", name="pair"))
    (state.path / "disks" / "node0").mkdir(parents=True)
    assert LAB.sweep(state) == []
    assert names() == set()
    assert not list((state.path / "disks").glob("node*"))


def _opened_for_its_lock(directory: Path) -> None:
    """As Terraform leaves it that is killed before it has written anything."""
    directory.mkdir()
    (directory / "terraform.tfstate").touch()
