"""`gpuyard catalog` filters and sorts rows, and ranks GPUs for a workload."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_predict_clusters import on_80_columns
from tests.conftest import Cli


def rows(cli: Cli, *arguments: str) -> Any:
    return json.loads(cli("catalog", *arguments, "--json").stdout)


def test_rows_of_one_gpu_and_cloud(cli: Cli) -> None:
    result = rows(cli, "prices", "--gpu", "h100", "--cloud", "aws")
    assert {row["gpu"] for row in result} == {"h100-sxm5-80gb"}
    assert {row["cloud"] for row in result} == {"aws"}
    assert {row["gpu"] for row in rows(cli, "machines", "--gpu", "gtx-1080-ti")} == {"gtx-1080-ti"}
    networks = rows(cli, "instance-networks", "--gpu", "a100", "--cloud", "azure")
    assert networks and all(row["id"].startswith("azure/") for row in networks)


def test_rows_by_memory_and_in_order(cli: Cli) -> None:
    large = rows(cli, "gpus", "--min-memory", "100", "--sort", "w")
    assert min(row["memory_gb"] for row in large) >= 100
    watts = [row["board_watts"] for row in large]
    assert watts == sorted(watts)
    down = rows(cli, "prices", "--gpu", "t4", "--sort", "$/h", "--descending")
    dollars = [row["usd_per_hour"] for row in down]
    assert dollars == sorted(dollars, reverse=True)
    first = rows(cli, "gpus", "--sort", "fp8")  # those without fp8 come last
    assert first[0]["fp8_tflops"] and first[-1]["fp8_tflops"] is None


@pytest.mark.parametrize("memory", ["80", "80 GB", "80GB", "80 GiB"])
def test_memory_may_have_its_unit(cli: Cli, memory: str) -> None:
    assert rows(cli, "gpus", "--min-memory", memory) == rows(cli, "gpus", "--min-memory", "80.0")
    done = cli("catalog", "gpus", "--min-memory", f"{memory} of it", status=2)
    assert "expected GB of memory" in " ".join(done.stderr.split())


def test_the_sort_column_is_shown_on_a_narrow_terminal() -> None:
    for arguments, column in (
        (("--sort", "date"), "date"),
        (("--model", "resnet50", "--sort", "speed-per-watt"), "per W"),
    ):
        assert any(column in line for line in on_80_columns("catalog", "gpus", *arguments)[:12]), (
            arguments
        )


def test_gpus_without_the_memory_come_last_and_old_ones_have_a_warning(cli: Cli) -> None:
    arguments = ("gpus", "--model", "gpt2", "--precision", "bf16", "--sort", "speed-per-dollar")
    fits = [row["fits"] for row in rows(cli, *arguments)["gpus"]]
    number = fits.count(True)
    assert 0 < number < len(fits), "the model fits on some GPUs of the catalog but not on all"
    assert fits == [True] * number + [False] * (len(fits) - number)
    shown = cli("catalog", *arguments).stdout
    assert shown.count("Pascal GPUs are at the end") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["links", "--gpu", "h100"], "No such option: --gpu"),
        (["gpus", "--cloud", "aws"], "add --model WORKLOAD"),
        (["prices", "--gpu", "h1000"], "no GPU is called 'h1000'"),
        (["prices", "--cloud", "amazon"], "no cloud in the price table is called 'amazon'"),
        (["gpus", "--sort", "weight"], "no column of the GPU table is called 'weight'"),
        (["gpus", "--precision", "fp16"], "add --model WORKLOAD"),
        (["gpus", "h100-sxm5-80gb", "--model", "resnet50"], "choose some with --gpu"),
        (
            ["gpus", "--model", "resnet50", "--sort", "beauty"],
            "no order of GPUs is called 'beauty'",
        ),
        (["gpus", "--model", "resnet50", "--precision", "fp64"], "no precision is called 'fp64'"),
        (["published", "--model", "resnet51"], "did you mean 'resnet50'"),
    ],
)
def test_mistakes_name_the_option_and_the_fix(cli: Cli, arguments: list[str], message: str) -> None:
    assert message in cli("catalog", *arguments, status=2).stderr


def test_gpus_are_ranked_for_a_workload(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "gpus.html"
    arguments = ("gpus", "--model", "resnet50", "--precision", "fp16")
    result = rows(cli, *arguments, "--sort", "speed-per-dollar", "--html", str(page))
    order = [row["samples_per_second_per_1000_usd"] for row in result["gpus"]]
    ranked = [figure for figure in order if figure is not None]
    assert ranked == sorted(ranked, reverse=True)
    assert order[len(ranked) :] == [None] * (len(order) - len(ranked))
    by_gpu = {row["gpu"]: row for row in result["gpus"]}
    assert by_gpu["v100-sxm2-16gb"]["speed_basis"] == "published"
    assert by_gpu["l40s"]["speed_basis"] == "predicted"
    assert by_gpu["rtx-3080"]["usd"] == 699
    a100 = by_gpu["a100-sxm4-80gb"]
    rate, hourly = a100["samples_per_second"], a100["usd_per_gpu_hour"]
    assert a100["samples_per_rented_usd"] == pytest.approx(rate * 3600 / hourly)
    assert a100["samples_per_second_per_watt"] == pytest.approx(rate / 400)
    assert result["left_out"] == []
    assert by_gpu["gtx-1080-ti"]["precision"] == "fp16"
    assert "fp32 or slower" in by_gpu["gtx-1080-ti"]["precision_note"]
    assert "trainium-2" not in by_gpu
    assert {row["table"] for row in result["published"]} >= {"lambda", "mlperf"}
    assert "chart-speed-per-dollar" in page.read_text(encoding="utf-8")


def test_a_users_own_figure_takes_precedence_over_a_published_one(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.workload.yaml"
    file.write_text(
        "name: mine\nmodel: resnet50\nprecision: fp16\nbatch_per_gpu: 64\nmeasured:\n"
        "  - {gpu: v100-sxm2-16gb, batch_per_gpu: 64, samples_per_second: 321}\n",
        encoding="utf-8",
    )
    result = rows(cli, "gpus", "--model", str(file), "--gpu", "v100-sxm2-16gb")
    (mine,) = result["gpus"]
    assert (mine["speed_basis"], mine["samples_per_second"]) == ("measured", pytest.approx(321))


def test_rents_of_one_cloud(cli: Cli) -> None:
    result = rows(cli, "gpus", "--model", "bert-base", "--precision", "fp16", "--cloud", "lambda")
    assert result["gpus"]
    assert all(row["rented_as"].startswith("lambda/") for row in result["gpus"])


def test_published_rows_by_model_and_gpu(cli: Cli) -> None:
    result = rows(cli, "published", "--model", "bert-large", "--gpu", "h100")
    assert result and {row["model"] for row in result} == {"bert-large"}
    assert all("h100" in row["gpu"] and row["source"] for row in result)
