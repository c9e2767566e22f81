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
    answer = json.loads(cli("plan", str(small), "--json").stdout)
    assert set(answer) >= {"winner", "front", "alternatives", "left_out", "reasons", "verdict"}
    assert answer["winner"]["run_seconds"] <= 8 * 3600
    assert answer["winner"]["usd_per_run_low"] <= answer["winner"]["usd_per_run"]
    assert answer["winner"]["gpu"] in ("a100-sxm4-80gb", "h100-sxm5-80gb")
    assert answer["winner"]["price_date"]


def test_plan_prints_tables_and_writes_a_page(cli: Cli, small: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    done = cli("plan", str(small), "--why", "--html", str(page))
    assert "per finished run" in done.stdout
    assert "Why the others lost" in done.stdout
    assert "Prices date from 20" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "chart-plan" in text and "Cost against time" in text


def test_an_invalid_plan_names_file_and_line(cli: Cli, small: Path) -> None:
    small.write_text(SMALL.replace("20\n", "minus two\n"), encoding="utf-8")
    done = cli("plan", str(small), status=2)
    assert f"{small}:8: runs_per_month" in done.stderr
    assert "Traceback" not in done.stderr


def test_playbook_json(cli: Cli) -> None:
    done = cli("playbook", "--researchers", "12", "--gpus", "32", "--load", "spiky", "--json")
    answer = json.loads(done.stdout)
    assert answer["stage"] == "servers-with-scheduler"
    assert answer["where"] == "cloud"
    assert answer["commands"]


def test_playbook_from_a_plan(cli: Cli, small: Path) -> None:
    done = cli("playbook", str(small), "--researchers", "30")
    assert "Stage: servers with a scheduler" in done.stdout
    assert "the plan's choice" in done.stdout
    assert f"gpuyard plan {small}" in done.stdout


def test_playbook_refuses_an_unknown_load(cli: Cli) -> None:
    done = cli("playbook", "--load", "spikey", status=2)
    assert "'spiky'?" in done.stderr


def test_a_plan_warns_of_gpus_without_software_support(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "old.plan.yaml"
    old = SMALL.replace("a100-sxm4-80gb, h100-sxm5-80gb", "v100-sxm2-16gb, v100-sxm2-32gb")
    file.write_text(old, encoding="utf-8")
    assert "Volta GPUs are at the end" in cli("plan", str(file)).stdout
    answer = json.loads(cli("plan", str(file), "--json").stdout)
    assert [end["id"] for end in answer["end_of_life"]] == ["Volta"]
