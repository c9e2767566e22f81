"""The history of leases as a demand for `cost hybrid` and `plan`."""

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuyard.economics.usage import demand_from_usage, read_usage, runs_per_month
from gpuyard.errors import UserMistake
from gpuyard.share.setup import set_up
from tests.conftest import Cli

HOUR, DAY = 3600.0, 86400.0
MONDAY = datetime(2026, 1, 5, tzinfo=UTC).timestamp()


@pytest.fixture
def usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    """Write a quarter's leases: two GPUs for nine hours on each of 91 days, and half a GPU for an hour."""
    share = tmp_path / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(share))
    set_up(share, fake_gpus=8)
    store = sqlite3.connect(share / "leases.sqlite")
    for day in range(91):
        for project, gpus, parts, hours, ended in (
            ("nmt", "[0, 1]", 1_000_000, 9, "finished" if day % 7 else "died"),
            ("toy", "[2]", 500_000, 1, "finished"),
        ):
            start = MONDAY + day * DAY + 9 * HOUR
            store.execute(
                'INSERT INTO leases (id, uid, user, "group", pid, process_start, boot_id, command, project,'
                ' count, requested_gpus, parts, requested_at, gpus, start, "end", end_reason)'
                " VALUES (?, 0, 'ann', 'ann', 1, 1, 'old', 'x', ?, 1, '[]', ?, 1, ?, ?, ?, ?)",
                (f"{project}{day}", project, parts, gpus, start, start + hours * HOUR, ended),
            )
    store.commit()
    store.close()
    file = tmp_path / "usage.json"
    file.write_text(cli("usage", "--json").stdout, encoding="utf-8")
    return file


def test_usage_is_the_demand_curve_of_cost_and_plan(usage: Path, cli: Cli) -> None:
    demand = demand_from_usage(read_usage(usage.read_text(), "u"), "u")
    assert list(demand.gpus[:24]) == [2.5, *[2.0] * 8, *[0.0] * 15]
    assert demand.gpu_hours == pytest.approx(91 * 18.5)
    line = ("--rent", "$1.50/h", "--buy", "$8000", "--json")
    found = json.loads(cli("cost", "hybrid", "--usage", str(usage), *line).stdout)
    assert found["demand"]["gpu_hours"] == pytest.approx(91 * 18.5)
    plan = ("plan", "examples/resnet50.plan.yaml", "--json")
    own = json.loads(cli(*plan).stdout)["goal"]["runs_per_month"]
    used = json.loads(cli(*plan, "--usage", str(usage), "--project", "nmt").stdout)["goal"]
    # 78 of 91 runs finished, in a little less than three months
    assert used["runs_per_month"] == pytest.approx(78 / (90.375 / 30.4375)) != own


def test_what_is_no_usage_is_a_sentence(usage: Path, cli: Cli, tmp_path: Path) -> None:
    used = read_usage(usage.read_text(), "u")
    with pytest.raises(UserMistake, match="project 'x'"):
        runs_per_month(used, "u", "x")
    with pytest.raises(UserMistake, match="less than a week"):
        runs_per_month(used[:4], "u")
    with pytest.raises(UserMistake, match="no lease"):
        demand_from_usage((), "u")
    for text in ("[]", "{", '{"leases": [{"end": 3}]}', '{"leases": 3}', "[" * 100_000):
        with pytest.raises(UserMistake, match=r"gpuyard usage --json > usage.json"):
            read_usage(text, "u")
    assert (
        "--usage" in cli("plan", "examples/resnet50.plan.yaml", "--project", "a", status=2).stderr
    )
