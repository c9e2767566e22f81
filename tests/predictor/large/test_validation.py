"""`gpuyard validate --rows`: anybody's table of large-model runs is judged, and junk is explained."""

import csv
import json
from importlib import resources
from pathlib import Path

import pytest

from gpuyard.catalog import gpus
from gpuyard.errors import UserMistake
from gpuyard.predictor.large.effects import attention_is_older
from gpuyard.predictor.large.row_software import parse_compiled, parse_family
from gpuyard.predictor.large.rows import read_rows
from gpuyard.predictor.large.validation import judge_table
from tests.conftest import Cli

DATA = Path(str(resources.files("gpuyard.predictor"))) / "data"
RUNS, MEMORY = DATA / "large_runs.csv", DATA / "large_memory.csv"


def test_the_shipped_table_is_judged(cli: Cli) -> None:
    scores = json.loads(
        cli("validate", "--rows", str(RUNS), "--memory", str(MEMORY), "--json").stdout
    )
    assert {"sources", "overall", "skipped", "choices", "memory"} <= set(scores)
    assert scores["overall"]["rows"] > 1800
    assert scores["overall"]["median_abs_error"] < 0.10
    assert scores["overall"]["inside_interval"] > 0.85
    assert scores["choices"]["groups"] > 50
    assert scores["choices"]["median_regret"] < 0.03
    assert scores["memory"]["fits_right"] > 0.95
    assert scores["memory"]["said_fits_but_oom"] < 0.02


def test_one_figure_per_series_is_not_judged() -> None:
    without, with_point = judge_table(RUNS), judge_table(RUNS, points=1)
    assert without.overall is not None
    assert with_point.overall is not None
    assert with_point.overall.rows < without.overall.rows


def test_a_table_of_runs_without_a_speed_judges_the_memory_alone(tmp_path: Path) -> None:
    with RUNS.open(encoding="utf-8") as file:
        row = next(csv.DictReader(file)) | {"value": "OOM"}
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    scores = judge_table(path)
    assert (scores.overall, scores.sources) == (None, ())
    assert scores.memory is not None
    assert scores.memory["rows"] == 1


def test_a_row_without_a_shape_is_skipped_with_its_reason(tmp_path: Path) -> None:
    with RUNS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:3]
    rows[1]["hidden"], rows[1]["model"], rows[2]["gpu"] = "", "someone's", "abacus"
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    read, skipped = read_rows(path)
    assert [row.row for row in read] == [1]
    assert (skipped[0].row, skipped[0].reason) == (2, "hidden is missing")
    assert "abacus" in skipped[1].reason


def test_a_table_without_its_columns_names_them(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("model,layers\nx,1\n", encoding="utf-8")
    with pytest.raises(UserMistake, match=r"runs\.csv.*hidden"):
        read_rows(path)


@pytest.mark.parametrize(
    ("framework", "zero", "family", "compiled"),
    [
        ("Megatron-LM", 1, "megatron", None),
        ("Megatron-Bridge 25.09", 3, "megatron", None),
        ("Megatron-DeepSpeed", 1, "megatron", None),
        ("DeepSpeed (HF)", 2, "pytorch", False),
        ("torchtitan; torch.compile", 3, "pytorch", True),
        ("PyTorch FSDP", 3, "pytorch", None),
        ("", 3, "pytorch", None),
        ("", 0, "megatron", None),
    ],
)
def test_software_as_people_name_it(
    framework: str, zero: int, family: str, compiled: bool | None
) -> None:
    assert parse_family(framework, zero) == family
    assert parse_compiled(framework) is compiled


@pytest.mark.parametrize(
    ("gpu", "pytorch", "kernel", "older"),
    [
        ("a100-sxm4-80gb", True, "flash2", False),
        ("a100-sxm4-80gb", True, "flash1", True),
        ("h100-sxm5-80gb", True, "", True),
        ("h100-sxm5-80gb", True, "flash3", False),
        ("h100-sxm5-80gb", False, "flash(cudnn/te)", False),
    ],
)
def test_attention_kernels_belong_to_a_gpu_generation(
    gpu: str, *, pytorch: bool, kernel: str, older: bool
) -> None:
    assert attention_is_older(gpus().get(gpu), pytorch=pytorch, name=kernel) is older
