"""A file in the current directory never replaces a module of Python, torch, or gpuyard."""

import json
import os
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from gpuyard import interpreter
from gpuyard.measure.links.loopback import time_loopback
from gpuyard.run.horovod_build import plan_build
from gpuyard.workloads.code_trust import find_module
from tests.conftest import MACHINE, Cli, needs_two_cores

# modules that ranks import: from the standard library, and dependencies of torch and gpuyard
PLANTED = ("wave", "sympy", "networkx", "mpmath", "psutil", "pydantic", "colorsys", "pip")
OWN_MODEL = (
    "from torch import nn\nimport own_part\ndef make():\n    return nn.Linear(own_part.WIDTH, 4)\n"
)
WORKLOAD = "name: own\nmodel: own_net:make\ninput: {shape: [16]}\ntarget: {classes: 4}\n"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Create a directory with modules that leave a trace when imported."""
    directory = tmp_path / "planted"
    directory.mkdir()
    for name in PLANTED:
        trace = directory / f"{name}.ran"
        (directory / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    return directory


def list_traces(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.ran"))


@MACHINE
@needs_two_cores
@pytest.mark.parametrize("launcher", [pytest.param("direct", marks=pytest.mark.soak), "torchrun"])
def test_planted_modules_run_in_no_rank_and_the_users_module_is_found_beside_the_spec(
    gpuyard_process: Cli, planted: Path, launcher: str
) -> None:
    models = planted / "models"
    models.mkdir()
    (models / "own_net.py").write_text(OWN_MODEL)
    (models / "own_part.py").write_text("import wave\nWIDTH = 16\n")
    (models / "own.workload.yaml").write_text(WORKLOAD)
    spec = "models/own.workload.yaml"
    # not even if PYTHONPATH names it, as `PYTHONPATH=$PYTHONPATH:/somewhere` does if it was unset
    path = os.pathsep.join(["", os.environ.get("PYTHONPATH", ""), "."])
    done = gpuyard_process("predict", spec, "--on", "dgx-a100", "--json", cwd=planted)
    assert json.loads(done.stdout)["predictions"]
    gpuyard_process(
        *("bench", "train", spec, "--workers", "2", "--batch", "2"),
        *("--time-per-point", "0.2 s", "--launcher", launcher),
        cwd=planted,
        environment={"PYTHONPATH": path},
    )
    assert list_traces(planted) == []


def test_python_m_gpuyard_imports_nothing_from_the_current_directory(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    """Modules that Python itself imports for -m before gpuyard starts are excluded."""
    script = "import runpy, sys; print(*sys.modules)"
    before = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    for name in sys.stdlib_module_names.difference(before):
        if not name.startswith("_"):
            trace = tmp_path / f"{name}.ran"
            (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    gpuyard_process("--version", cwd=tmp_path)
    gpuyard_process("catalog", "gpus", cwd=tmp_path)
    assert list_traces(tmp_path) == []


@MACHINE
def test_planted_modules_run_in_no_other_gpuyard_process(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted)
    monkeypatch.syspath_prepend(str(planted))  # as with `python -m gpuyard`
    assert time_loopback(1000, 1, both_ways=False)
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler to build Horovod with pip")
    install = plan_build().commands[0]
    pip = install[: install.index("install")]
    subprocess.run([*pip, "--version"], check=True, capture_output=True)
    assert list_traces(planted) == []


def test_a_module_is_located_where_it_would_be_imported_from(planted: Path) -> None:
    (planted / "own_net.py").write_text(OWN_MODEL)
    assert find_module("own_net:make", (planted,)) == planted / "own_net.py"
    assert find_module("wave:open", (planted,)) == Path(wave.__file__)
    assert list_traces(planted) == []


def test_child_processes_get_the_current_directory_only_if_it_contains_gpuyard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = str(tmp_path / "other")
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path), "other", *sys.path])
    passed = interpreter.import_path()["PYTHONPATH"].split(os.pathsep)
    assert passed[0] == other
    assert str(tmp_path) not in passed
    home_of_gpuyard = Path(interpreter.__file__).parents[1]
    monkeypatch.chdir(home_of_gpuyard)
    monkeypatch.setattr(sys, "path", [str(home_of_gpuyard)])
    assert interpreter.import_path()["PYTHONPATH"] == str(home_of_gpuyard)


def test_every_python_process_starts_without_the_current_directory() -> None:
    """A new use of `sys.executable` must be reviewed and added here."""
    source = Path(interpreter.__file__).parent
    files_with_python = subprocess.run(
        ["grep", "-rln", "sys.executable", "--include=*.py", str(source)],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {Path(file).relative_to(source).as_posix() for file in files_with_python} == {
        "interpreter.py",
        "deploy/ansible/run.py",  # finds ansible-playbook beside it
        "deploy/stack/install.py",  # only names it in what is shown
        "run/attached.py",  # finds programs beside it
        "run/places/hosts.py",  # replaces it with another host's Python and keeps -P
        "jobs/engines/slurm/script/launch.py",  # isolated, with the standard library only
        "measure/collectives/plan.py",  # finds mpiexec beside it
        "share/notebook/jupyter.py",  # removes its directory from the path itself
        "share/setup.py",  # only checks its permissions
    }
