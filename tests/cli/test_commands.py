"""The command line as programs and people use it."""

import json
from pathlib import Path

import pytest

import gpuyard as gy
from tests.conftest import Cli


def test_predict_json_has_the_fixed_shape(cli: Cli) -> None:
    done = cli(
        "predict", "examples/spoken-digits-linear.workload.yaml",
        "--on", "examples/apollo.cluster.yaml", "--gpus", "1,2,4,8,16,32", "--json",
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert set(result) >= {"workload", "cluster", "predictions"}
    sixteen = next(p for p in result["predictions"] if p["gpus"] == 16)
    assert (sixteen["nodes"], sixteen["gpus_per_node"], sixteen["batch_per_gpu"]) == (2, 8, 50)
    assert sixteen["strategy"] == "ddp"
    assert sixteen["low"] < sixteen["samples_per_second"] < sixteen["high"]
    assert set(sixteen["step"]) >= {
        "compute_seconds", "exposed_communication_seconds", "input_seconds", "straggler_seconds",
    }  # fmt: skip
    assert sixteen["choke"] == "network"


def test_predict_compares_placements_of_the_same_gpus(cli: Cli) -> None:
    def throughput(*extra: str) -> float:
        done = cli(
            "predict", "resnet50", "--on", "examples/apollo.cluster.yaml", "--gpus", "16",
            "--batch", "64", "--json", *extra,
        )  # fmt: skip
        (prediction,) = json.loads(done.stdout)["predictions"]
        return float(prediction["samples_per_second"])

    assert throughput("--gpus-per-node", "4") != throughput()


def test_cost_gives_the_founding_break_even(cli: Cli) -> None:
    done = cli("cost", "--rent", "$1.50/h", "--buy", "$8000", "--hours-per-year", "2000", "--json")
    result = json.loads(done.stdout)
    assert result["break_even_hours"] == pytest.approx(5333.3, abs=0.1)
    assert result["break_even_years"] == pytest.approx(2.67, abs=0.005)
    done = cli("cost", "--rent", "$1.50/h", "--buy", "$8000", "--speed-lead", "30%", "--json")
    result = json.loads(done.stdout)
    assert result["break_even_hours"] == pytest.approx(3733.3, abs=0.1)
    assert result["owned_cash_by_month_usd"][0] == 8000
    assert result["saving_present_value_usd"] == pytest.approx(1000)
    assert result["payments_even_months"] == pytest.approx(32)
    more = ["--speed-lead", "30%", "--horizon", "4 years"]
    done = cli("cost", "--rent", "$1.50/h", "--buy", "$8000", *more, "--json")
    assert json.loads(done.stdout)["break_even_hours"] == pytest.approx(3733.3, abs=0.1)


@pytest.mark.parametrize(
    "table", ["gpus", "machines", "links", "models", "prices", "gpu-prices", "chassis", "ports"]
)
def test_every_catalog_row_has_source_and_date(cli: Cli, table: str) -> None:
    rows = json.loads(cli("catalog", table, "--json").stdout)
    assert all(row["source"] and row["date"] for row in rows)
    name = rows[0]["id"]
    assert json.loads(cli("catalog", table, name, "--json").stdout) == rows[0]
    assert name in cli("catalog", table, name).stdout


def test_doctor_shows_what_works(cli: Cli) -> None:
    result = json.loads(cli("doctor", "--json").stdout)
    assert result["host"]["usable_cores"] >= 1
    parts = {part["part"]: part for part in result["parts"]}
    assert parts["catalog, predict, and cost"]["works"]
    assert [row.part for row in gy.doctor()] == list(parts)
    assert "fix: gpuyard data fetch spoken-digits" in cli("doctor").stdout


def test_doctor_with_a_home_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    done = cli("doctor", environment={"GPUYARD_HOME": str(blocked / "home")})
    assert "export GPUYARD_HOME=DIRECTORY" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "resnet50", "--on", "dgx-a10"], "did you mean 'dgx-a100'"),
        (["predict", "resnet-50", "--on", "dgx-a100"], "did you mean 'resnet50'"),
        (["predict", "resnet50", "--on", "dgx-a100", "--gpus", "1,x"], "number of GPUs: expected whole numbers like 1,2,4 or 1-8, got 'x' in '1,x'"),
        (["predict", "resnet50", "--on", "dgx-a100", "--gpus", "8..1"], "the range '8..1' ends before it starts: write 1-8"),
        (["predict", "resnet50", "--on", "dgx-a100", "--gpus", "0"], "must be 1 or more"),
        (["predict", "resnet50", "--on", "1000000000x8xt4@10G"], "expected 1 to 100,000 machines, got 1,000,000,000"),
        (["predict", "resnet50", "--on", "2x8xt4@10GB"], "write @10G for 10Gbit/s, or @10GB/s"),
        (["deploy", "bench", "examples/pair.deployment.yaml", "--batch", "-1"], "batch size: must be 1 or more"),
        (["deploy", "bench", "examples/pair.deployment.yaml", "--nodes", "0"], "number of machines: must be 1 or more"),
        (["cost", "growth", "--researchers", "1e308", "--gpu-hours", "1e308", "--rent", "$1/h", "--buy", "$1"], "1,000,000,000, got 1e+308"),
        (["prices", "update", "--from", "/dev/null"], "/dev/null: the file is empty"),
        (["predict", "resnet50", "--on", "dgx-a100", "--gpus", "16"], "need 2 nodes; the cluster has 1 × 8 GPUs"),
        (["predict", "resnet50", "--on", "dgx-a100", "--strategy", "dpp"], "did you mean 'ddp'"),
        (["predict", "nowhere:model", "--on", "dgx-a100"], "gpuyard init workload --model nowhere:model"),
        (["cost", "--rent", "$1.50", "--buy", "$8000"], "write it like '$1.50/h'"),
        (["cost", "--rent", "$1.50/h", "--buy", "lots"], "write it like '$8000'"),
        (["catalog", "gpus", "v100"], "no GPU is called 'v100'"),
        (["schema", "clusters"], "did you mean 'cluster'"),
        (["study", "none.study.yaml"], "none.study.yaml: file not found"),
        (["data", "fetch", "spoken-digit"], "did you mean 'spoken-digits'"),
        (["data", "fetch", "spoken-digits", "--from", "/nonexistent"], "/nonexistent"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli(*arguments, status=2)
    assert done.stderr.startswith("gpuyard: ")
    assert message in done.stderr
    assert not done.stdout


def test_validate_prints_the_errors_and_the_method(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "validation.html"
    done = cli("validate", "--table", "horovod", "--json", "--html", str(page))
    result = json.loads(done.stdout)
    assert set(result["tables"]) == {"horovod"}
    assert result["overall"]["rows"] == 9
    assert set(result["baselines"]) == {"perfect_scaling", "no_overlap"}
    assert "<svg" in page.read_text(encoding="utf-8")
    assert "fitted without its table" in cli("validate", "--table", "horovod").stdout


def test_validate_names_the_closest_table(cli: Cli) -> None:
    done = cli("validate", "--table", "polux_t4", status=2)
    assert "pollux_t4" in done.stderr
    assert "Traceback" not in done.stderr
