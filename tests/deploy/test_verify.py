"""Checks of a deployment, evaluated on recorded answers of machines."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.access.remote import ssh_argv
from gpuyard.deploy.deployment import load_deployment
from gpuyard.deploy.verify import Verification, check, training
from gpuyard.deploy.verify.jupyter import evaluate_answer
from gpuyard.deploy.verify.machines import parse_chrony_tracking
from gpuyard.deploy.verify.monitoring import evaluate_targets
from gpuyard.deploy.verify.slurm import judge_user_job
from gpuyard.measure.machine_lock import MachineBusy, hold_measurement_lock
from gpuyard.report.answers.deploy import verify_answer
from tests.conftest import MACHINE, Cli
from tests.deploy.conftest import Up

TRACKING = """Reference ID    : C0A80001 (gateway)
Stratum         : 3
Ref time (UTC)  : Tue Nov 17 03:00:00 2026
System time     : {offset} seconds slow of NTP time
Last offset     : -0.000012345 seconds
Leap status     : {leap}
"""


@pytest.mark.parametrize(
    ("answer", "ok", "detail"),
    [
        ({"without": 403, "with": 200, "mode": "0o600"}, True, "200 with the token, 403 without"),
        ({"without": 200, "with": 200, "mode": "0o600"}, False, "returns 200"),
        ({"without": 403, "with": 403, "mode": "0o600"}, False, "403 with the token"),
        ({"without": 403, "with": 200, "mode": "0o644"}, False, "others can read the token"),
        ({"without": "[Errno 111] refused", "with": "x"}, False, "[Errno 111]"),
    ],
)
def test_notebooks_require_the_token(answer: dict[str, object], ok: bool, detail: str) -> None:
    check = evaluate_answer(answer, "node0", hub=False)
    assert check.ok is ok
    assert detail in check.detail


@pytest.mark.parametrize(
    ("log", "owners", "ok", "detail"),
    [
        (["node0", "node1"], {"node0": "ada", "node1": "ada"}, True, "node0 and node1"),
        (["node0", "node1"], {"node0": "ada", "node1": "root"}, False, "node1 (to root)"),
        (["node0", "node1"], {"node0": "ada"}, False, "node1 is not there"),
        (["node0"], {"node0": "ada"}, False, "2 nodes"),
        ([], {"node0": "ada", "node1": "ada"}, False, "log"),
    ],
)
def test_a_users_job_must_run_on_two_nodes_and_leave_the_users_files(
    log: list[str], owners: dict[str, str], ok: bool, detail: str
) -> None:
    answer = {"log": log, "owners": owners}
    assert judge_user_job(answer, "ada", 2, "/shared")[0] is ok
    assert detail in judge_user_job(answer, "ada", 2, "/shared")[1]


def _target(machine: str, job: str, health: str, error: str = "") -> dict[str, Any]:
    return {"labels": {"machine": machine, "job": job}, "health": health, "lastError": error}


def test_prometheus_must_see_every_machine() -> None:
    targets = [
        _target("node0", "node", "up"),
        _target("node0", "gpu", "up"),
        _target("node1", "node", "down", "connection refused"),
        _target("node2", "node", "unknown"),
    ]
    document = {"data": {"activeTargets": targets}}
    results = {
        c.host: (c.ok, c.detail)
        for c in evaluate_targets(document, ["node0", "node1", "node2", "node3"])
    }
    assert results == {
        "node0": (True, "Prometheus scrapes it (gpu, node)"),
        "node1": (False, "node: connection refused"),
        "node2": (False, "node: unknown"),
        "node3": (False, "Prometheus does not scrape it"),
    }


def test_a_machine_that_hangs_has_failed_its_check_and_no_other(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine hangs like this if a mount has lost its server."""
    loaded = load_deployment(Path(up.file))
    monkeypatch.setattr(check, "TIMEOUT_SECONDS", 1.0)
    head = loaded.state.hosts()[0]
    hung = check.run_command((*ssh_argv(loaded, head), "exec sleep 30"))
    assert hung.returncode != 0
    assert "1 s" in hung.stderr


@pytest.mark.parametrize(
    ("offset", "leap", "ok"),
    [
        ("0.000123456", "Normal", True),
        ("0.000123456", "Not synchronised", False),
        ("2.5", "Normal", False),
    ],
)
def test_a_clock_that_chrony_does_not_keep_is_seen(offset: str, leap: str, ok: bool) -> None:
    assert parse_chrony_tracking(TRACKING.format(offset=offset, leap=leap))[0] is ok
    assert parse_chrony_tracking("506 Cannot talk to daemon")[0] is False


@MACHINE
def test_a_check_that_measures_waits_for_other_measurements_and_is_then_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = iter([MachineBusy("another gpuyard is measuring"), None])

    def measure() -> tuple[bool, str]:
        if (error := next(busy)) is not None:
            raise error
        return True, "fast"

    monkeypatch.setattr(training, "_POLL_SECONDS", 0.0)
    assert training.measure_check("train", "all", measure).ok is True

    monkeypatch.setattr(training, "_MAX_WAIT_SECONDS", 0.0)
    with hold_measurement_lock():
        untried = training.measure_check("train", "all", _measure_alone)
    assert untried.ok is None
    assert "another gpuyard is measuring" in untried.detail

    passed = check.CheckResult("reachable", "node0", True, "node0")
    failed = check.CheckResult("in time", "node0", False, "late")
    assert Verification((passed, untried)).ok
    assert not Verification((passed, untried, failed)).ok
    shown = verify_answer(Verification((passed, untried)))
    assert shown.document["checks"][1]["ok"] is None
    rows = str(shown.parts)
    assert "not tried" in rows
    assert "FAILED" not in rows


def _measure_alone() -> tuple[bool, str]:
    with hold_measurement_lock():
        return True, "alone"


def test_verify_beside_a_running_up_says_so(up: Up, cli: Cli) -> None:
    with up.state.hold():
        error = cli("deploy", "verify", up.file, status=1).stderr
    assert "another gpuyard process is changing the deployment 'ours'" in error
