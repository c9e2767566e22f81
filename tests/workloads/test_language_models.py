"""A workload with your own language model needs only its tokens and `target: next-token`."""

import json
from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import SpecError
from gpuyard.workloads import profile_model
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
def test_the_model_is_trained_on_every_next_token(
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
    assert profile_model(workload).sample == "sequence of 6 tokens"


def test_an_error_names_the_required_shape_of_the_logits(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "last_lm", f"({LOGITS})[:, -1:]")
    completed = cli("predict", str(path), "--on", "t4", cwd=tmp_path, status=2)
    for fragment in ("last_lm:make", "[2, 1, 11]", "[2, 6]", "[2, 6, 11]"):
        assert fragment in completed.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("below: 11", "dtype: float32"), "target: next-token needs tokens as input"),
        (("[6]", "[6, 6]"), "target: next-token needs tokens as input"),
        (("next-token", "next-word"), "target: expected next-token, got 'next-word'"),
    ],
)
def test_other_inputs_than_tokens_are_refused(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    path = write(tmp_path, "wrong_lm")
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(SpecError, match=message):
        read_workload(str(path))


def test_a_workload_without_input_gets_an_example_with_tokens(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "bare_lm")
    path.write_text("".join(x for x in path.read_text().splitlines(True) if "input" not in x))
    completed = cli("predict", str(path), "--on", "t4", cwd=tmp_path, status=2)
    assert "input: {shape: [256], below: 50257}" in " ".join(completed.stderr.split())
    assert "224" not in completed.stderr


def test_the_example_is_predicted_at_the_first_try(cli: Cli) -> None:
    example = "examples/gpt.workload.yaml"
    completed = cli("predict", example, "--on", "8xa100-sxm4-80gb", "--json", cwd=ROOT)
    document = json.loads(completed.stdout)
    assert all(p["fits"] for p in document["predictions"])


@MACHINE
def test_ranks_import_modules_from_the_directory_of_the_spec(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write(models, "beside_lm")
    completed = gpuyard_process(
        "bench", "train", "models/beside_lm.workload.yaml", "--workers", "2", "--time-per-point", "0.2 s",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    (measured,) = json.loads(completed.stdout)
    assert measured["profile"]["sample"] == "sequence of 6 tokens"


def test_modules_next_to_a_spec_do_not_shadow_installed_ones(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    path = write(models, "own_lm")
    for name in ("torch", "json", "numpy"):
        (models / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    gpuyard_process("predict", str(path), "--on", "t4", cwd=tmp_path)


def test_an_error_lists_all_places_that_were_searched(cli: Cli, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    path = write(models, "gone_lm")
    (models / "gone_lm.py").unlink()
    completed = cli("predict", str(path), "--on", "t4", cwd=tmp_path, status=2)
    for place in ("installed packages", f"{tmp_path} ", str(models)):
        assert place in completed.stderr
