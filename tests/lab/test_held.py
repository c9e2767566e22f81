"""A lab that is in use stays, also when somebody looks at it at the same moment."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.errors import UserMistake
from gpuyard.lab import network, state


def known(home: Path) -> lab.Lab:
    """A lab as its file says; holding it needs no network."""
    plan = lab.plan_lab(1, "1Gbit")
    namespaces = network.namespace_names(plan, "0a1b2c")
    made_at = "2026-01-02T03:04:05+00:00"
    state.write(lab.LabState(plan, namespaces, "ready", owned=False, made_at=made_at))
    assert home in state.directory().parents
    return lab.Lab(plan, ())


def test_who_looks_whether_it_is_held_does_not_keep_it_from_being_held(home: Path) -> None:
    found = known(home)
    looking, go_on = threading.Event(), threading.Event()

    def look() -> None:
        with state.changing():
            descriptor = state.own("lab")  # as `is_held` does, for a moment
            looking.set()
            go_on.wait(60)
            os.close(descriptor)

    looker = threading.Thread(target=look)
    looker.start()
    assert looking.wait(60)
    threading.Timer(0.2, go_on.set).start()
    with found.held():
        go_on.set()
        looker.join()
        assert state.is_held("lab")
    assert not state.is_held("lab")


def test_a_lab_that_went_in_the_meantime_is_said(home: Path) -> None:
    found = known(home)
    state.forget("lab")
    with pytest.raises(UserMistake, match="there is no lab 'lab'"), found.held():
        pass


def test_a_file_beside_it_is_not_taken_for_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labs are made by root, who may stand in anybody's directory."""
    (tmp_path / "ctypes.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    node = lab.Node(lab.plan_lab(1, "1Gbit").nodes[0], "gpuyard-no-such-namespace")
    done = subprocess.run(node.command(["true"]), capture_output=True, text=True, check=False)
    assert "gpuyard-no-such-namespace can't be entered" in done.stderr
