"""Errors in the user's own code name the file and line."""

import json
from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.workloads.synthetic import synthetic_layers
from tests.conftest import Cli

WORKLOAD = "name: own\nmodel: own_net:make\ninput: {shape: [8]}\ntarget: {classes: 3}\n"


@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        ("def make(:\n", "own_net cannot be imported"),
        ("raise KeyError('x')\n", "own_net.py:1: KeyError"),
        ("def make():\n    return 1 / 0\n", "own_net.py:2: ZeroDivisionError"),
        ("def make(size):\n    return size\n", "must be callable without arguments"),
        ("from torch import nn\ndef make():\n    return nn.Linear(9, 3)\n", "float32 [8]"),
        ("from torch import nn\nclass Net(nn.Linear):\n    def forward(self, x):\n        raise ValueError('too wide')\n"
         "def make():\n    return Net(8, 3)\n", "too wide"),
        ("def make():\n    return 3\n", "must return a torch.nn.Module"),
    ],
)  # fmt: skip
def test_predict_names_the_users_file_and_line(
    cli: Cli, tmp_path: Path, code: str, fragment: str
) -> None:
    (tmp_path / "own_net.py").write_text(code)
    (tmp_path / "own.workload.yaml").write_text(WORKLOAD)
    completed = cli("predict", "own.workload.yaml", "--on", "dgx-a100", cwd=tmp_path, status=2)
    assert completed.stderr.startswith("gpuyard: ")
    assert fragment in completed.stderr


@pytest.fixture
def inspecting_workload(tmp_path: Path) -> Path:
    """Create a workload whose model reads tensor values while it is built; the meta device has none."""
    (tmp_path / "inspecting_net.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, int(torch.ones(3).sum().item()))\n"
    )
    path = tmp_path / "own.workload.yaml"
    path.write_text(WORKLOAD.replace("own_net", "inspecting_net"))
    return path


def test_a_model_can_read_values_while_it_is_built(cli: Cli, inspecting_workload: Path) -> None:
    completed = cli(
        "predict",
        inspecting_workload.name,
        "--on",
        "dgx-a100",
        "--json",
        cwd=inspecting_workload.parent,
    )
    assert json.loads(completed.stdout)["predictions"]


def test_a_synthetic_gpu_has_the_shapes_of_such_a_model(
    inspecting_workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(inspecting_workload.parent)
    (layer,) = synthetic_layers(read_workload(str(inspecting_workload)))
    assert layer.shapes == ((3, 8), (3,))
