"""Root creates labs, so neither a state file nor a name may make them change anything else."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gpuyard import lab
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.lab import network, state
from gpuyard.lab.plan import plan_lab
from tests.conftest import Cli


def build_document(name: str = "lab", **other: Any) -> dict[str, Any]:
    plan = plan_lab(1, "1Gbit", name=name)
    return {
        "plan": {**plan.describe(), "nodes": [vars(node) for node in plan.nodes]},
        "namespaces": [f"gpuyard-{name}-abcdef-fabric", f"gpuyard-{name}-abcdef-node0"],
        "stage": "making",
        "owned": True,
        "made_at": "2026-01-01T00:00:00+00:00",
        **other,
    }


def write_state(home: Path, changed: dict[str, Any], stem: str = "lab") -> Path:
    path = home / "labs" / f"{stem}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(changed))
    return path


def test_a_valid_state_is_read(home: Path) -> None:
    write_state(home, build_document())
    lab_state = state.read("lab")
    assert lab_state is not None
    assert lab_state.namespaces[1] == "gpuyard-lab-abcdef-node0"


@pytest.mark.usefixtures("can_make_labs")
@pytest.mark.parametrize(
    ("command", "status", "file"),
    [("status", 0, "lab.json"), ("down", 1, "lab.unreadable")],
)
def test_a_path_for_a_namespace_deletes_no_file(
    command: str, status: int, file: str, home: Path, tmp_path: Path, cli: Cli
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    write_state(home, build_document(namespaces=[str(victim), str(victim)]))
    done = cli("lab", command, status=status)
    assert victim.read_text() == "precious"
    assert file in done.stderr


@pytest.mark.parametrize(
    "namespaces",
    [
        [],
        ["gpuyard-lab-abcdef-fabric"],
        ["gpuyard-lab-abcdef-fabric", "/etc/passwd"],
        ["gpuyard-lab-abcdef-fabric", "../gpuyard-lab-abcdef-node0"],
        ["gpuyard-lab-abcdef-fabric", "gpuyard-other-abcdef-node0"],
        ["gpuyard-lab-abcdef-fabric", "gpuyard-lab-123456-node0"],
        ["gpuyard-lab-abcdef-fabric\n", "gpuyard-lab-abcdef-node0"],
        ["docker0", "docker1"],
        [1, 2],
        "gpuyard",
    ],
)
def test_namespaces_that_are_not_the_labs_are_refused(namespaces: object, home: Path) -> None:
    write_state(home, build_document(namespaces=namespaces))
    with pytest.raises(state.UnreadableState):
        state.read("lab")
    assert len(lab.unreadable()) == 1
    assert lab.labs() == []


def test_a_state_file_must_name_its_own_lab(home: Path) -> None:
    write_state(home, build_document("other"))
    with pytest.raises(state.UnreadableState, match="'other'"):
        state.read("lab")


def test_node_names_must_be_those_of_the_lab(home: Path) -> None:
    changed = build_document(namespaces=["gpuyard-lab-abcdef-fabric", "gpuyard-lab-abcdef-../../x"])
    changed["plan"]["nodes"][0]["name"] = "../../x"
    write_state(home, changed)
    with pytest.raises(state.UnreadableState):
        state.read("lab")


@pytest.mark.parametrize("namespace", ["/any/file", "../x", "docker0", "gpuyard-lab-node0", ""])
def test_only_a_labs_namespaces_are_ever_removed(namespace: str) -> None:
    pytest.importorskip("pyroute2")
    with pytest.raises(GpuyardError, match="lab namespace"):
        network.remove_network([namespace])


@pytest.mark.parametrize("name", ["../../x", "/x", "lab\n", "", "..", "a/b", "a.b", "A"])
def test_an_invalid_name_reaches_no_file(name: str, home: Path, tmp_path: Path) -> None:
    outside = home.parent / "x.json"
    outside.write_text("{")
    for act in (
        state.read,
        state.lock_exclusively,
        state.lock_shared,
        state.is_held,
        state.forget,
        state.set_aside,
    ):
        with pytest.raises(UserMistake, match="lab name"):
            act(name)
    with pytest.raises(UserMistake, match="lab name"):
        plan_lab(1, "1Gbit", name=name)
    assert outside.read_text() == "{"


@pytest.mark.usefixtures("can_make_labs")
def test_down_renames_nothing_outside(home: Path, cli: Cli) -> None:
    outside = home.parent / "x.json"
    outside.write_text("{")
    done = cli("lab", "down", "--name", "../../x", status=2)
    assert "lab name" in done.stderr
    assert outside.read_text() == "{"
    assert not outside.with_suffix(".unreadable").exists()


def test_a_state_that_others_may_write_is_refused(home: Path) -> None:
    write_state(home, build_document()).chmod(0o666)
    with pytest.raises(state.UnreadableState, match="other users may write to it"):
        state.read("lab")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the owner of a file needs root")
def test_a_state_of_another_user_is_refused(home: Path) -> None:
    os.chown(write_state(home, build_document()), 65534, 65534)
    with pytest.raises(state.UnreadableState, match="belongs to another user"):
        state.read("lab")


def test_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    real = write_state(home, build_document(), "real")
    real.with_name("lab.json").symlink_to(real)
    with pytest.raises(state.UnreadableState):
        state.read("lab")
    (home / "labs" / "lab.owner").symlink_to(tmp_path / "made-by-root")
    with pytest.raises(GpuyardError):
        state.lock_exclusively("lab")
    assert not (tmp_path / "made-by-root").exists()


def test_a_directory_that_others_may_write_to_is_refused(home: Path) -> None:
    write_state(home, build_document())
    (home / "labs").chmod(0o777)
    with pytest.raises(GpuyardError, match=re.escape("chmod go-w")):
        lab.labs()


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the owner of a directory needs root")
def test_a_directory_of_another_user_is_refused(home: Path) -> None:
    write_state(home, build_document())
    os.chown(home / "labs", 65534, 65534)
    with pytest.raises(GpuyardError, match="belongs to another user"):
        lab.labs()
