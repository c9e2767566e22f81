"""The wheel carries its data and works in an empty virtual environment, far from the repository."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.soak


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty venv with the wheel and only what the wheel itself asks for."""
    place = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", place, ROOT, cwd=place)
    (wheel,) = place.glob("gpuyard-*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, cwd=place)
    environment = place / "venv"
    venv.create(environment, with_pip=True)
    run(environment / "bin" / "pip", "install", "--quiet", wheel, cwd=place)
    yield environment / "bin" / "gpuyard"


def test_it_describes_predicts_and_prices_without_the_repo(installed: Path, tmp_path: Path) -> None:
    gpus = json.loads(run(installed, "catalog", "gpus", "--json", cwd=tmp_path))
    assert len(gpus) >= 40
    predicted = json.loads(
        run(
            installed,
            "predict",
            "resnet50",
            "--on",
            "dgx-h100",
            "--gpus",
            "1,8",
            "--json",
            cwd=tmp_path,
        )
    )
    assert len(predicted["predictions"]) == 2
    assert "5,333 h" in run(installed, "cost", "--rent", "$1.50/h", "--buy", "$8000", cwd=tmp_path)
    assert json.loads(run(installed, "schema", "study", cwd=tmp_path))["title"] == "Study"


def test_a_study_without_torch_predicts_and_says_that_nothing_was_measured(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "plan.study.yaml").write_text(
        "name: plan\nworkloads: [resnet50]\n"
        "clusters: [{cluster: dgx-a100, gpus: [1, 8]}]\ncost: {rent: $1.50/h, buy: $8000}\n"
    )
    printed = run(installed, "study", "plan.study.yaml", "--output-dir", "out", cwd=tmp_path)
    assert "Nothing was measured on this machine: training needs PyTorch" in printed
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "GPU CHOKE" in page
    assert len(page) > 500_000  # the charts' code is inside


WITHOUT_EXTRAS = """
catalog gpus
cost --rent $22/h --buy $150000
doctor
facility 4xdgx-h100 --country DE
init workload --yes
init --examples
plan --budget $60000 --researchers 6 --model resnet50
playbook --researchers 12 --gpus 32 --load spiky
predict resnet50 --on 8xh100 --why
predict llama-3-8b --on 4xdgx-h100 --strategy auto
results list
schema plan
stack lock
topo --preset dual-root
validate --table horovod
version
"""
WITH_EXTRAS = {
    "bench train resnet18": "gpuyard[train]",
    "data make images --images 2": "gpuyard[images]",
    "lab up": "gpuyard[lab]",
    "deploy plan pair.deployment.yaml": "gpuyard[deploy]",
}


@pytest.mark.parametrize("line", WITHOUT_EXTRAS.strip().splitlines())
def test_a_command_without_extras_works(installed: Path, tmp_path: Path, line: str) -> None:
    run(installed, *line.split(), cwd=tmp_path)  # which checks the exit status


@pytest.mark.parametrize(("line", "extra"), WITH_EXTRAS.items())
def test_a_command_that_needs_an_extra_names_it(
    installed: Path, tmp_path: Path, line: str, extra: str
) -> None:
    run(installed, "init", "--example", "pair", cwd=tmp_path)
    done = subprocess.run(
        [str(installed), *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert extra in done.stderr
    assert "Traceback" not in done.stderr
