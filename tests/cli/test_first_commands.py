"""The commands that a newcomer types first, in a home of their own."""

import csv
import io
import json
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

import gpuyard as gy
from gpuyard.errors import UserMistake
from gpuyard.share.setup import set_up
from gpuyard.version import __version__
from tests.conftest import Cli
from tests.share.conftest import needs_root


@pytest.fixture(autouse=True)
def _one_format_per_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process runs one command line, so the chosen format stays."""
    monkeypatch.setattr("gpuyard.cli.show._format", "json")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("predict resnet50 --on 8xh100", "8 GPUs: "),
        ("predict resnet50 --on h100", "1 GPU: "),
        ("predict resnet50 --on H100:8", "8 GPUs: "),
        ("predict resnet50 --on h100x8", "resnet50 on 8 × H100 SXM5 80 GB"),
        ("predict resnet50 --on 2xA100x8@10g", "resnet50 on 2 × 8 × A100 SXM4 80 GB"),
        ("predict resnet50 --on p4d.24xlarge", "8 GPUs: "),
        ("predict resnet50 --on aws/p4d.24xlarge", "8 GPUs: "),
        ("predict resnet50 --on 4xp5.48xlarge", "32 GPUs: "),
        ("predict resnet50 --on 2x8xa100@10g", "10 Gbit/s"),
        ("predict resnet50 --on 2x8xa100@10Gb", "10 Gbit/s"),
        ("predict resnet50 --on 2x8xa100@hdr", "16 GPUs: "),
        ("predict resnet50 --on 8xh100 --gpus 1-8", "8 GPUs: "),
        ("predict resnet50 --on 8xh100 --gpus 1..8", "8 GPUs: "),
        ("plan --budget '$60000' --researchers 6 --model resnet50", "per finished run"),
        ("playbook --budget '$60000'", "GPU"),
        ("topo --preset dual-root --gpu rtx-4090", "dual-root"),
        ("cost --rent '$1.50/h' --buy '$8000'", "5,333"),
        ("facility 4xdgx-h100", "kW"),
        ("catalog gpus --model resnet50", "h100"),
        ("help predict", "Usage: gpuyard predict"),
        ("version", __version__),
        ("-V", __version__),
        ("queue policy", "policy"),
    ],
)
def test_it_answers(cli: Cli, home: Path, tmp_path: Path, line: str, shown: str) -> None:
    assert home
    output = cli(*shlex.split(line), cwd=tmp_path).stdout
    assert shown in " ".join(output.split()), output[:500]


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("plan --budget '$0' --model resnet50", "--budget"),
        ("plan --budget '$60000' --model resnet50 --runs-per-month -1", "--runs-per-month"),
        ("plan --budget '$60000' --model resnet50 --time-per-run 0h", "--time-per-run"),
        ("playbook --budget '$0'", "--budget"),
        ("predict examples --on 8xh100", "examples is a directory"),
        ("predict resnet50 --on 2x8xa100@hrd", "did you mean 'hdr'?"),
        ("predict resnet50 --on 2x8xa100@ethernet10g", "did you mean 'ethernet-10g'?"),
        ("predict resnet50 -on 8xh100", "did you mean --on?"),
    ],
)
def test_a_wrong_value_is_a_mistake_that_names_its_option(
    cli: Cli, tmp_path: Path, line: str, option: str
) -> None:
    (tmp_path / "examples").mkdir()
    done = cli(*shlex.split(line), cwd=tmp_path, status=2)
    assert option in done.stderr


def test_the_common_variant_of_a_gpu_is_named(cli: Cli) -> None:
    for name in ("8xh100", "H100:8"):
        assert "H100 SXM5 80 GB" in cli("predict", "resnet50", "--on", name).stdout


@pytest.mark.parametrize("name", ["gcp/a3-highgpu-8g", "a3-highgpu-8g", "gcp/H100x8"])
def test_an_instance_has_a_name_with_and_without_its_cloud(cli: Cli, name: str) -> None:
    assert "gcp a3-highgpu-8g" in cli("predict", "resnet50", "--on", name).stdout


def test_an_instance_with_its_cloud_is_a_price(cli: Cli) -> None:
    bought = ("--buy", "$150000", "--json")
    by_instance, by_id = (
        cli("cost", "--rent", name, *bought).stdout for name in ("gcp/a3-highgpu-8g", "gcp/H100x8")
    )
    assert by_instance == by_id


def test_a_part_of_an_instance_suggests_it(cli: Cli) -> None:
    assert "p5.48xlarge" in cli("predict", "resnet50", "--on", "p5", status=2).stderr
    unknown = cli("predict", "resnet50", "--on", "qqq9", status=2).stderr
    assert "catalog prices" in unknown


def test_ranges_of_gpus(cli: Cli) -> None:
    for text in ("1-8", "1..8"):
        command = ("predict", "resnet50", "--on", "8xh100", "--gpus", text, "--json")
        rows = json.loads(cli(*command).stdout)["predictions"]
        assert [row["gpus"] for row in rows] == list(range(1, 9))


@pytest.mark.parametrize("named", ["unet.py", "unet:build"])
@pytest.mark.parametrize("command", ["predict {} --on h100", "init workload --model {}"])
def test_the_command_that_is_advised_for_code_works(
    cli: Cli, tmp_path: Path, named: str, command: str
) -> None:
    (tmp_path / "unet.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Linear(4, 2)\n"
    )
    if command.startswith("init") and ":" in named:
        return  # this is the advised command
    error = cli(*command.format(named).split(), cwd=tmp_path, status=2).stderr
    _, _, rest = error.partition("with gpuyard ")
    advised = rest.split(",")[0].split("\n")[0].replace("FUNCTION", "build")
    cli(*shlex.split(advised), cwd=tmp_path)
    (file,) = tmp_path.glob("*.workload.yaml")
    file.write_text(file.read_text().replace("[3, 224, 224]", "[4]").replace("1000}", "2}"))
    assert "samples/s" in cli("predict", file.name, "--on", "h100", cwd=tmp_path).stdout


def test_a_missing_python_file_is_not_found(cli: Cli, tmp_path: Path) -> None:
    error = cli("predict", "unet.py", "--on", "h100", cwd=tmp_path, status=2).stderr
    assert "unet.py not found" in error


@pytest.mark.parametrize("option", ["-o", "--output-format"])
def test_the_four_formats(cli: Cli, option: str) -> None:
    command = ("predict", "resnet50", "--on", "8xh100")
    document = json.loads(cli(*command, "--json").stdout)
    assert json.loads(cli(*command, option, "json").stdout) == document
    assert yaml.safe_load(cli(*command, option, "yaml").stdout) == document
    rows = list(csv.DictReader(io.StringIO(cli(*command, option, "csv").stdout)))
    assert [int(row["gpus"]) for row in rows] == [row["gpus"] for row in document["predictions"]]
    assert cli(*command, option, "table").stdout == cli(*command).stdout


@pytest.mark.parametrize(
    ("command", "column"), [("status", "handle"), ("queue", "handle"), ("deploy status", "name")]
)
def test_csv_without_rows_is_a_header(cli: Cli, command: str, column: str) -> None:
    table = csv.DictReader(io.StringIO(cli(*command.split(), "-o", "csv").stdout))
    assert column in (table.fieldnames or ())
    assert not list(table)


def test_csv_of_no_results_is_empty(cli: Cli) -> None:
    assert cli("results", "list", "-o", "csv").stdout == ""


def test_csv_has_the_rows_of_all_clusters_and_lists_as_json(cli: Cli) -> None:
    command = ("predict", "resnet50", "--on", "2xh100", "--on", "2xa100", "--gpus", "2")
    rows = list(csv.DictReader(io.StringIO(cli(*command, "-o", "csv").stdout)))
    assert [row["cluster"] for row in rows] == ["2 × H100 SXM5 80 GB", "2 × A100 SXM4 80 GB"]
    assert json.loads(rows[0]["moves"])[0]["name"] == "gradients"


def test_csv_of_one_answer_is_one_row(cli: Cli) -> None:
    done = cli("cost", "--rent", "$1/h", "--buy", "$8000", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert float(row["buy_usd"]) == 8000


def test_lists_on_a_laptop_say_what_to_do_first(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without Slurm
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    listed = cli("status").stdout
    assert "sbatch" not in listed and "kubeconfig" not in listed
    assert "gpuyard status --json" in listed
    assert "Your jobs on Slurm use" not in cli("queue", "policy").stdout
    assert "gpuyard bench train" in str(gy.results.list())


@needs_root
def test_the_advised_test_gpus_work_with_a_python_that_only_root_can_run(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as public:
        Path(public).chmod(0o755)
        monkeypatch.delenv("GPUYARD_SHARE_DIR", raising=False)
        monkeypatch.setattr("gpuyard.share.config.MACHINE_DIRECTORY", Path(public) / "share")
        tmp_path.chmod(0o700)
        python = tmp_path / "python3"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o700)
        monkeypatch.setattr("sys.executable", str(python))
        refused = cli("share", "setup", "--fake-gpus", "2", status=1).stderr
        assert "--no-service" in refused
        refused = cli("submit", "--engine", "local", "--", "true", status=1).stderr
        hint = refused.partition("gpuyard share ")[2]
        assert "8 test GPUs" in cli("share", *shlex.split(hint)).stderr


def test_jobs_and_reservations_by_their_numbers(
    cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_ENGINE", "local")
    set_up(home / "share", fake_gpus=2, grace_seconds=0.5)
    assert cli("submit", "--", "echo", "trained", cwd=tmp_path).stdout == "local://1\n"
    cli("wait", "1", "--wait", "2min")
    assert "succeeded" in cli("status", "1").stdout
    assert "trained" in cli("logs", "1").stdout
    cli("submit", "--gpus", "2", "--", "sleep", "600", cwd=tmp_path)
    assert "local://2" in cli("status").stdout
    assert "local://2" in cli("queue", "explain", "2").stdout
    cli("cancel", "2")
    cli("wait", "2", "--wait", "2min", status=1)
    assert "fifo" in cli("queue", "policy", "fifo").stdout
    cli("queue", "rebalance", "--dry-run", status=1)  # there is no Slurm here
    reserved = cli("reserve", "2", "--start", "tomorrow 8:00", "--for", "1h").stdout
    (name,) = re.findall(r"\((\w+)\)", reserved)
    assert name in cli("reserve", "list").stdout
    assert name in cli("reserve", "cancel", name).stdout


@pytest.mark.parametrize(
    ("model", "hardware", "gpus"),
    [
        ("ResNet50", "8 × H100 SXM5 80 GB", 8),
        ("resnet50", "2x RTX 4090", 2),
        ("resnet50", "NVIDIA H100", 1),
        ("Llama-3-8B", "8xh100", 8),
        ("meta-llama/Llama-3.1-8B", "8xh100", 8),
    ],
)
def test_names_as_people_write_them(cli: Cli, model: str, hardware: str, gpus: int) -> None:
    answer = json.loads(cli("predict", model, "--on", hardware, "--json").stdout)
    assert answer["predictions"][-1]["gpus"] == gpus


def test_a_model_known_only_by_its_shape_is_sent_to_the_commands_that_divide_it(cli: Cli) -> None:
    for command in (("catalog", "gpus", "--model"), ("bench", "train")):
        error = cli(*command, "llama-3-8b", status=2).stderr
        assert "large model" in error
        assert "gpuyard predict" in error
    assert "choose from" not in error


def test_the_shape_to_write_is_valid_yaml(cli: Cli) -> None:
    error = cli("predict", "resnet50", "--on", "8xh100", "--lora", "16", status=2).stderr
    assert error.count("{") == error.count("}") == 1


def test_an_empty_model_is_not_a_directory(cli: Cli) -> None:
    assert "directory" not in cli("predict", "", "--on", "h100", status=2).stderr


def test_two_output_formats_exclude_each_other(cli: Cli) -> None:
    error = cli("catalog", "links", "--json", "-o", "csv", status=2).stderr
    assert "--json" in error
    assert cli("catalog", "links", "--json", "-o", "json").stdout.startswith("[")


def test_a_negative_number_of_other_jobs_is_refused() -> None:
    with pytest.raises(UserMistake, match="other_jobs"):
        gy.predict("resnet50", on="8xh100", other_jobs=-3)
