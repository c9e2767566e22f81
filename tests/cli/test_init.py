"""`gpuyard init` writes files that their commands accept, with one flag for each value."""

import json
import shlex
from pathlib import Path

import pytest

from gpuyard.api.starter_templates import VALUES
from gpuyard.catalog.specfiles import known_names
from gpuyard.specs.loading import parse_spec
from gpuyard.specs.schema import SPECS
from tests.conftest import Cli

OTHER_VALUES = {
    "name": "other", "model": "bert-base", "samples": "1000", "epochs": "2", "batch": "64", "gpus": "4", "gpu": "a10",
    "nodes": "3", "gpus-per-node": "1", "rate": "10 Gbit/s", "researchers": "2", "runs-per-month": "5", "budget": "$9000",
    "place": "office", "country": "US", "voltage": "230 V", "amps": "16 A", "phases": "1",
    "receptacle": "nema-5-15r", "command": "python train.py",
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_every_flag_sets_its_value(cli: Cli, tmp_path: Path, kind: str) -> None:
    flags = [f"--{value.name}={OTHER_VALUES[value.name]}" for value in VALUES[kind]]
    cli("init", kind, *flags, cwd=tmp_path)
    file = tmp_path / f"other.{kind}.yaml"
    text = file.read_text()
    parse_spec(text, file, SPECS[kind], known_names())
    for value in VALUES[kind]:
        assert OTHER_VALUES[value.name] in text, value.name


@pytest.mark.parametrize("kind", sorted(set(VALUES) - {"deployment"}))
def test_the_first_line_is_a_command_that_works(cli: Cli, tmp_path: Path, kind: str) -> None:
    cli("init", kind, cwd=tmp_path)
    (file,) = tmp_path.glob(f"*.{kind}.yaml")
    _, _, command = file.read_text().splitlines()[0].partition("Try it: gpuyard ")
    assert cli(*shlex.split(command), cwd=tmp_path).stdout


def test_mistakes_leave_no_file(cli: Cli, tmp_path: Path) -> None:
    for arguments, message in (
        (["workload", "--model", "resnet5"], "did you mean 'resnet50'"),
        (["workload", "--gpu", "h1000"], "h1000"),
        (["cluster", "--gpus-per-node", "two"], "machine.gpus: expected a whole number"),
        (["cluster", "--batch", "3"], "No such option: --batch"),
        (["clstr"], "cluster"),
        ([], "workload|cluster|plan|site|job|deployment"),
        (["--example", "resnet50", "plan"], "--example"),
    ):
        assert message in " ".join(cli("init", *arguments, cwd=tmp_path, status=2).stderr.split())
        assert not list(tmp_path.glob("*.yaml"))


def test_an_existing_file_is_kept(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.job.yaml"
    file.write_text("mine")
    assert "mine.job.yaml already exists" in cli("init", "job", str(file), status=2).stderr
    assert file.read_text() == "mine"


def test_examples_are_copied_with_the_files_they_name(cli: Cli, tmp_path: Path) -> None:
    assert "resnet50.plan.yaml" in cli("init", "--examples").stdout.splitlines()
    cli("init", "--example", "resnet50.plan.yaml", cwd=tmp_path)
    assert (tmp_path / "resnet50.plan.yaml").exists()


def test_a_plan_file_and_the_same_plan_without_a_file_agree(cli: Cli, tmp_path: Path) -> None:
    goal = ("--budget", "$60000", "--researchers", "6")
    cli("init", "plan", *goal, cwd=tmp_path)
    written = cli("plan", "my-plan.plan.yaml", "--json", cwd=tmp_path).stdout
    described = cli("plan", *goal, "--model", "resnet50", "--json").stdout
    costs = [json.loads(text)["winner"]["usd_per_run"] for text in (written, described)]
    assert costs[0] == costs[1]


def test_files_for_a_large_model_count_tokens(cli: Cli, tmp_path: Path) -> None:
    for kind, verb in (("workload", "predict"), ("plan", "plan")):
        cli("init", kind, "--model", "llama-3-8b", "--name", "mine", cwd=tmp_path)
        hardware = ["--on", "8xh100"] if verb == "predict" else []
        answer = cli(verb, f"mine.{kind}.yaml", *hardware, "--json", cwd=tmp_path).stdout
        assert "tokens_per_second" in answer
        assert (
            "tokens" in cli("init", kind, "--model", "llama-3-8b", "--epochs", "2", status=2).stderr
        )
