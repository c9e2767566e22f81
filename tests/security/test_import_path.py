"""What lies in the current directory is never taken for a module of Python, of torch or of gpuyard."""

import json
import os
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from gpuyard import interpreter
from gpuyard.measure.links.loopback import loopback_seconds
from gpuyard.run.horovod_build import plan_build
from gpuyard.workloads.own_code import find_module
from tests.conftest import MACHINE, Cli, needs_two_cores

# what ranks import, of Python's library, of torch's needs and of gpuyard's own
PLANTED = ("wave", "sympy", "networkx", "mpmath", "psutil", "pydantic", "colorsys", "pip")
OWN_MODEL = (
    "from torch import nn\nimport own_part\ndef make():\n    return nn.Linear(own_part.WIDTH, 4)\n"
)
WORKLOAD = "name: own\nmodel: own_net:make\ninput: {shape: [16]}\ntarget: {classes: 4}\n"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A directory with modules that leave a trace when they are imported."""
    directory = tmp_path / "planted"
    directory.mkdir()
    for name in PLANTED:
        trace = directory / f"{name}.ran"
        (directory / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    return directory


def traces(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.ran"))


@MACHINE
@needs_two_cores
@pytest.mark.parametrize("launcher", [pytest.param("direct", marks=pytest.mark.soak), "torchrun"])
def test_planted_modules_run_in_no_rank_and_a_users_own_is_found_last_beside_the_spec(
    gpuyard_process: Cli, planted: Path, launcher: str
) -> None:
    models = planted / "models"
    models.mkdir()
    (models / "own_net.py").write_text(OWN_MODEL)
    (models / "own_part.py").write_text("import wave\nWIDTH = 16\n")
    (models / "own.workload.yaml").write_text(WORKLOAD)
    spec = "models/own.workload.yaml"
    # nor where it is named, as by `PYTHONPATH=$PYTHONPATH:/somewhere` where none was set before
    path = os.pathsep.join(["", os.environ.get("PYTHONPATH", ""), "."])
    done = gpuyard_process("predict", spec, "--on", "dgx-a100", "--json", cwd=planted)
    assert json.loads(done.stdout)["predictions"]
    gpuyard_process(
        *("bench", "train", spec, "--workers", "2", "--batch", "2"),
        *("--time-per-point", "0.2 s", "--launcher", launcher),
        cwd=planted,
        environment={"PYTHONPATH": path},
    )
    assert traces(planted) == []


def test_python_m_takes_nothing_from_the_current_directory_once_it_comes_to_gpuyard(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    """But what Python itself imports for -m, before a line of gpuyard runs."""
    look = "import runpy, sys; print(*sys.modules)"
    before = subprocess.check_output([sys.executable, "-c", look], text=True).split()
    for name in sys.stdlib_module_names.difference(before):
        if not name.startswith("_"):
            trace = tmp_path / f"{name}.ran"
            (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    gpuyard_process("--version", cwd=tmp_path)
    gpuyard_process("catalog", "gpus", cwd=tmp_path)
    assert traces(tmp_path) == []


@MACHINE
def test_planted_modules_run_in_no_other_process_of_ours(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted)
    monkeypatch.syspath_prepend(str(planted))  # as `python -m gpuyard` has it
    assert loopback_seconds(1000, 1, both_ways=False)
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("without a C++ compiler Horovod is not built, so its pip is not started")
    install = plan_build().commands[0]
    pip = install[: install.index("install")]
    subprocess.run([*pip, "--version"], check=True, capture_output=True)
    assert traces(planted) == []


def test_a_module_is_named_where_it_would_be_imported_from(planted: Path) -> None:
    (planted / "own_net.py").write_text(OWN_MODEL)
    assert find_module("own_net:make", (planted,)) == planted / "own_net.py"
    assert find_module("wave:open", (planted,)) == Path(wave.__file__)
    assert traces(planted) == []


def test_the_current_directory_is_passed_on_only_where_gpuyard_itself_is_in_it(
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


def test_every_python_that_is_started_takes_no_module_from_the_current_directory() -> None:
    """Whoever adds another one is reminded of it here."""
    source = Path(interpreter.__file__).parent
    named = subprocess.run(
        ["grep", "-rln", "sys.executable", "--include=*.py", str(source)],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {Path(file).relative_to(source).as_posix() for file in named} == {
        "interpreter.py",
        "deploy/ansible/run.py",  # looks for ansible-playbook beside it
        "run/places/hosts.py",  # names another host's in its place, and keeps its -P
        "jobs/engines/slurm/script/launch.py",  # isolated, and from the standard library alone
        "measure/collectives/plan.py",  # looks for mpiexec beside it
        "share/notebook/jupyter.py",  # takes the directory it stands in off the path itself
    }
