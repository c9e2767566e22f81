"""`gpuyard plan` and `gpuyard playbook` as programs and people use them."""

import json
from pathlib import Path

import pytest

from tests.conftest import Cli

SMALL = """\
name: small
workload:
  name: known
  model: resnet50
  precision: fp16
  dataset: {samples: 1281167}
  epochs: 90
runs_per_month: 20
time_per_run: 8 h
search: {gpus: [a100-sxm4-80gb, h100-sxm5-80gb], nodes: [1, 2]}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.plan.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return file


def test_plan_json_has_choice_front_and_reasons(cli: Cli, small: Path) -> None:
    found = json.loads(cli("plan", str(small), "--json").stdout)
    assert set(found) >= {"winner", "front", "alternatives", "left_out", "reasons", "verdict"}
    assert found["winner"]["run_seconds"] <= 8 * 3600
    assert found["winner"]["usd_per_run_low"] <= found["winner"]["usd_per_run"]
    assert found["winner"]["gpu"] in ("a100-sxm4-80gb", "h100-sxm5-80gb")
    assert found["winner"]["price_date"]


def test_plan_tells_people(cli: Cli, small: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    done = cli("plan", str(small), "--html", str(page))
    assert "per finished run" in done.stdout
    assert "Why the others lost" in done.stdout
    assert "Prices date from 20" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "chart-plan" in text and "Cost against time" in text


def test_a_plan_that_is_nonsense_says_where(cli: Cli, small: Path) -> None:
    small.write_text(SMALL.replace("20\n", "minus two\n"), encoding="utf-8")
    done = cli("plan", str(small), status=2)
    assert f"{small}:8: runs_per_month" in done.stderr
    assert "Traceback" not in done.stderr


def test_playbook_json(cli: Cli) -> None:
    done = cli("playbook", "--researchers", "12", "--gpus", "32", "--load", "spiky", "--json")
    found = json.loads(done.stdout)
    assert found["stage"] == "servers-with-scheduler"
    assert found["where"] == "cloud"
    assert found["commands"]


def test_playbook_from_a_plan(cli: Cli, small: Path) -> None:
    done = cli("playbook", str(small), "--researchers", "30")
    assert "Stage: servers with a scheduler" in done.stdout
    assert "the plan's choice" in done.stdout
    assert f"gpuyard plan {small}" in done.stdout


def test_playbook_refuses_what_cannot_be(cli: Cli) -> None:
    done = cli("playbook", "--load", "spikey", status=2)
    assert "did you mean 'spiky'?" in done.stderr


def test_a_plan_with_gpus_that_software_left_behind_says_so(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "old.plan.yaml"
    old = SMALL.replace("a100-sxm4-80gb, h100-sxm5-80gb", "v100-sxm2-16gb, v100-sxm2-32gb")
    file.write_text(old, encoding="utf-8")
    assert "Volta GPUs are at the end of their software's life" in cli("plan", str(file)).stdout
    found = json.loads(cli("plan", str(file), "--json").stdout)
    assert [end["id"] for end in found["end_of_life"]] == ["Volta"]
