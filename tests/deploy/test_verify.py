"""Checks of a deployment, evaluated on recorded answers of machines."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.access.remote import ssh_argv
from gpuyard.deploy.deployment import load_deployment
from gpuyard.deploy.verify import check
from gpuyard.deploy.verify.jupyter import evaluate_answer
from gpuyard.deploy.verify.machines import parse_chrony_tracking
from gpuyard.deploy.verify.monitoring import evaluate_targets
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
