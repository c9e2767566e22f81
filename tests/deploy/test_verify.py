"""Checks of a deployment, on what machines have said."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.deployment import open_deployment
from gpuyard.deploy.verify import check
from gpuyard.deploy.verify.jupyter import judged
from gpuyard.deploy.verify.machines import synchronised
from gpuyard.deploy.verify.monitoring import seen
from tests.deploy.conftest import Up

TRACKING = """Reference ID    : C0A80001 (gateway)
Stratum         : 3
Ref time (UTC)  : Tue Nov 17 03:00:00 2026
System time     : {offset} seconds slow of NTP time
Last offset     : -0.000012345 seconds
Leap status     : {leap}
"""


@pytest.mark.parametrize(
    ("answer", "ok", "words"),
    [
        ({"without": 403, "with": 200, "mode": "0o600"}, True, "200 with the token, 403 without"),
        ({"without": 200, "with": 200, "mode": "0o600"}, False, "says 200"),
        ({"without": 403, "with": 403, "mode": "0o600"}, False, "403 with the token"),
        ({"without": 403, "with": 200, "mode": "0o644"}, False, "others can read the token"),
        ({"without": "[Errno 111] refused", "with": "x"}, False, "[Errno 111]"),
    ],
)
def test_notebooks_answer_to_who_has_the_token(
    answer: dict[str, object], ok: bool, words: str
) -> None:
    check = judged(answer, "node0", hub=False)
    assert check.ok is ok
    assert words in check.found


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
    found = {c.host: (c.ok, c.found) for c in seen(document, ["node0", "node1", "node2", "node3"])}
    assert found == {
        "node0": (True, "Prometheus sees it (gpu, node)"),
        "node1": (False, "node: connection refused"),
        "node2": (False, "node: unknown"),
        "node3": (False, "Prometheus does not ask it"),
    }


def test_a_machine_that_hangs_has_failed_its_check_and_no_other(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose mount has lost its server."""
    opened = open_deployment(Path(up.file))
    monkeypatch.setattr(check, "SECONDS", 1.0)
    head = opened.state.hosts()[0]
    hung = check.run_on(opened, head, "exec sleep 30")
    assert hung.returncode != 0
    assert check.last_words(hung.stderr) == "no answer in 1 s"


@pytest.mark.parametrize(
    ("offset", "leap", "ok"),
    [
        ("0.000123456", "Normal", True),
        ("0.000123456", "Not synchronised", False),
        ("2.5", "Normal", False),
    ],
)
def test_a_clock_that_chrony_does_not_keep_is_seen(offset: str, leap: str, ok: bool) -> None:
    assert synchronised(TRACKING.format(offset=offset, leap=leap))[0] is ok
    assert synchronised("506 Cannot talk to daemon")[0] is False
