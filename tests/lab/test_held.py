"""A lab that is in use stays, also when somebody looks at it at the same moment."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.errors import UserMistake
from gpuyard.lab import network, state


def write_state(home: Path) -> lab.Lab:
    """Write the state of a lab; holding it needs no network."""
    plan = lab.plan_lab(1, "1Gbit")
    namespaces = network.namespace_names(plan, "0a1b2c")
    made_at = "2026-01-02T03:04:05+00:00"
    state.write(lab.LabState(plan, namespaces, "ready", owned=False, made_at=made_at))
    assert home in state.directory().parents
    return lab.Lab(plan, ())


def test_checking_whether_a_lab_is_held_does_not_prevent_holding_it(home: Path) -> None:
    existing = write_state(home)
    checking, proceed = threading.Event(), threading.Event()

    def check() -> None:
        with state.changing():
            descriptor = state.lock_exclusively("lab")  # as `is_held` does, for a moment
            checking.set()
            proceed.wait(60)
            os.close(descriptor)

    checker = threading.Thread(target=check)
    checker.start()
    assert checking.wait(60)
    threading.Timer(0.2, proceed.set).start()
    with existing.held():
        proceed.set()
        checker.join()
        assert state.is_held("lab")
    assert not state.is_held("lab")


def test_holding_a_removed_lab_names_it(home: Path) -> None:
    removed = write_state(home)
    state.forget("lab")
    with pytest.raises(UserMistake, match="'lab'"), removed.held():
        pass


def test_a_file_in_the_current_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root creates labs and may be in any user's directory."""
    (tmp_path / "ctypes.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    node = lab.Node(lab.plan_lab(1, "1Gbit").nodes[0], "gpuyard-no-such-namespace")
    done = subprocess.run(node.command(["true"]), capture_output=True, text=True, check=False)
    assert "gpuyard-no-such-namespace" in done.stderr
    assert done.returncode == 71
