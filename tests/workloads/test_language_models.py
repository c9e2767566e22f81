"""A language model of one's own needs its tokens and `target: next-token`, and nothing else."""

import json
from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import SpecError
from gpuyard.workloads import profile_of
from gpuyard.workloads.resolve import build_task
from tests.conftest import MACHINE, ROOT, Cli

WORKLOAD = "name: lm\nmodel: {module}:make\ninput: {{shape: [6], below: 11}}\ntarget: next-token\nbatch_per_gpu: 2\n"
MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(11, 4), nn.Linear(4, 11)

    def forward(self, tokens):
        return {returned}


def make():
    return Net()
"""
LOGITS = "self.head(self.words(tokens))"


def write(directory: Path, module: str, returned: str = LOGITS) -> Path:
    (directory / f"{module}.py").write_text(MODEL.format(returned=returned))
    path = directory / f"{module}.workload.yaml"
    path.write_text(WORKLOAD.format(module=module))
    return path


@pytest.mark.parametrize(
    ("module", "returned"),
    [
        ("plain_lm", LOGITS),
        ("tuple_lm", f"({LOGITS}, None)"),
        ("object_lm", f"__import__('types').SimpleNamespace(logits={LOGITS})"),
    ],
)
def test_it_is_trained_on_every_next_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, returned: str
) -> None:
    monkeypatch.chdir(tmp_path)
    workload = read_workload(str(write(tmp_path, module, returned)))
    task = build_task(workload)
    (tokens,), target = task.batch(3)
    assert tokens.shape == target.shape == (3, 6)
    assert (tokens[:, 1:] == target[:, :-1]).all()
    loss = task.loss(task.model(tokens), target)
    assert 1.5 < float(loss.detach()) < 4  # ln 11 is 2.4
    assert profile_of(workload).sample == "sequence of 6 tokens"


def test_a_model_that_returns_only_the_last_token_is_told_what_is_needed(
    cli: Cli, tmp_path: Path
) -> None:
    path = write(tmp_path, "last_lm", f"({LOGITS})[:, -1:]")
    done = cli("predict", str(path), "--on", "t4", cwd=tmp_path, status=2)
    assert "last_lm:make returned [2, 1, 11] for [2, 6] tokens" in done.stderr
    assert "needs the logits of every token, [2, 6, 11]" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (("below: 11", "dtype: float32"), "target: next-token needs tokens as input"),
        (("[6]", "[6, 6]"), "target: next-token needs tokens as input"),
        (("next-token", "next-word"), "target: expected next-token, got 'next-word'"),
    ],
)
def test_what_is_not_tokens_is_refused(
    tmp_path: Path, wrong: tuple[str, str], sentence: str
) -> None:
    path = write(tmp_path, "wrong_lm")
    path.write_text(path.read_text().replace(*wrong))
    with pytest.raises(SpecError, match=sentence):
        read_workload(str(path))


def test_one_without_an_input_is_told_of_tokens(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "bare_lm")
    path.write_text("".join(x for x in path.read_text().splitlines(True) if "input" not in x))
    done = cli("predict", str(path), "--on", "t4", cwd=tmp_path, status=2)
    assert "needs 'input', like: input: {shape: [256], below: 50257} and target: next-token" in " ".join(done.stderr.split())  # fmt: skip
    assert "224" not in done.stderr


def test_the_example_is_predicted_at_the_first_try(cli: Cli) -> None:
    example = "examples/gpt.workload.yaml"
    done = cli("predict", example, "--on", "8xa100-sxm4-80gb", "--json", cwd=ROOT)
    document = json.loads(done.stdout)
    assert all(p["fits"] for p in document["predictions"])


@MACHINE
def test_modules_beside_the_spec_are_found_by_ranks_too(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write(models, "beside_lm")
    done = gpuyard_process(
        "bench", "train", "models/beside_lm.workload.yaml", "--workers", "2", "--time-per-point", "0.2 s",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    (measured,) = json.loads(done.stdout)
    assert measured["profile"]["sample"] == "sequence of 6 tokens"


def test_nothing_beside_a_spec_takes_the_place_of_what_is_installed(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    path = write(models, "own_lm")
    for name in ("torch", "json", "numpy"):
        (models / f"{name}.py").write_text("raise SystemExit('taken over')\n")
    gpuyard_process("predict", str(path), "--on", "t4", cwd=tmp_path)


def test_a_module_that_is_nowhere_is_told_with_all_places(cli: Cli, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    path = write(models, "gone_lm")
    (models / "gone_lm.py").unlink()
    done = cli("predict", str(path), "--on", "t4", cwd=tmp_path, status=2)
    assert f"among the installed packages, in {tmp_path} and in {models}" in done.stderr
