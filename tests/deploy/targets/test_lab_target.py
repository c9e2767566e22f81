"""A lab on this machine as a deployment's target: its owner, and the remains of a killed run."""

from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets import TARGETS
from gpuyard.errors import GpuyardError

LAB = TARGETS["lab"]


def names() -> set[str]:
    return {existing.plan.name for existing, _ in lab.labs()}


@pytest.fixture
def state(can_make_labs: None) -> StateDirectory:
    del can_make_labs
    state_directory = StateDirectory("pair")
    state_directory.path.mkdir(parents=True)
    return state_directory


def test_another_users_lab_is_neither_adopted_nor_removed(state: StateDirectory) -> None:
    lab.up(lab.plan_lab(2, "1 Gbit/s", name="pair"))
    with pytest.raises(GpuyardError, match="a lab named 'pair' already exists"):
        LAB.check_unclaimed(state)
    assert LAB.list_existing(state) == []
    assert LAB.remove_untracked(state) == []
    assert names() == {"pair"}


def test_resources_of_a_killed_run_are_found_and_removed(
    state: StateDirectory,
) -> None:
    LAB.claim(state)
    lab.up(lab.plan_lab(2, "1 Gbit/s", name="pair"))
    _opened_for_its_lock(state.terraform)
    assert LAB.list_existing(state) == ["lab pair"]
    LAB.claim(state)
    assert names() == set()
    lab.up(lab.plan_lab(2, "1 Gbit/s", name="pair"))
    (state.path / "disks" / "node0").mkdir(parents=True)
    assert LAB.remove_untracked(state) == []
    assert names() == set()
    assert not list((state.path / "disks").glob("node*"))


def _opened_for_its_lock(directory: Path) -> None:
    """Leave an empty state, like a Terraform that was killed before it wrote anything."""
    directory.mkdir()
    (directory / "terraform.tfstate").touch()
