"""A data file runs no code without consent, and its code cannot stop, read, or garble gpuyard."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gpuyard.catalog.specfiles import read_plan, read_workload
from gpuyard.errors import CodeNotAllowed, GpuyardError, UserMistake
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import complete_sweep, plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.specs import Workload
from gpuyard.workloads.code_trust import allow_code, check_allowed
from gpuyard.workloads.profiles import profile_in_subprocess
from tests.conftest import MACHINE, Cli, MakeMeasurement, needs_two_cores

NET = "from torch import nn\ndef make():\n    return nn.Linear(16, 4)\n"
WORKLOAD = (
    "name: own\nmodel: own_net:make\nbatch_per_gpu: 4\ninput: {shape: [16]}\ntarget: {classes: 4}\n"
)
DATA = "dataset: {samples: 10000000, bytes_per_sample: 64, source: 'own_net:data'}\n"
PLAN = """\
name: p
workload: own.workload.yaml
runs_per_month: 10
search: {gpus: [t4], nodes: [1]}
"""
STUDY = "name: s\nworkloads: [own.workload.yaml]\nmeasure: null\nclusters: [{cluster: dgx-a100, gpus: [1, 2]}]\n"
SWEEP = "name: s\nworkloads: [own.workload.yaml]\nnodes: [1]\ntime_per_point: 200 ms\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a project whose model leaves a trace when it is imported."""

    def write(code: str = NET, where: str = "project") -> Path:
        directory = tmp_path / where
        directory.mkdir()
        trace = directory / "imported"
        (directory / "own_net.py").write_text(f"open({str(trace)!r}, 'w').close()\n{code}")
        (directory / "own.workload.yaml").write_text(WORKLOAD + DATA)
        (directory / "own.plan.yaml").write_text(PLAN)
        (directory / "own.study.yaml").write_text(STUDY)
        (directory / "own.sweep.yaml").write_text(SWEEP)
        return directory

    return write


def was_imported(directory: Path) -> bool:
    return (directory / "imported").exists()


# arguments of each command; {} is the directory of the spec
READING = {
    "predict": ("predict", "{}/own.workload.yaml", "--on", "dgx-a100"),
    "study": ("study", "{}/own.study.yaml", "--output-dir", "out"),
    "plan": ("plan", "{}/own.plan.yaml"),
    "playbook": ("playbook", "{}/own.plan.yaml"),
    "topo": ("topo", "compare", "dual-root", "--workload", "{}/own.workload.yaml", "--gpus", "2"),
    "ranking": ("catalog", "gpus", "--model", "{}/own.workload.yaml"),
    "storage": ("facility", "storage", "{}/own.workload.yaml", "--on", "dgx-a100"),
    "fabric": ("facility", "fabric", "--workload", "{}/own.workload.yaml", "--on", "{}/c.yaml"),
}
MEASURING = {
    "train": ("bench", "train", "{}/own.workload.yaml", "--workers", "1"),
    "sweep": ("bench", "sweep", "{}/own.sweep.yaml"),
    "relief": ("bench", "relief", "{}/own.workload.yaml", "--workers", "2"),
    "fit": ("train", "{}/own.workload.yaml", "--epochs", "1"),
}


def format_command(command: tuple[str, ...], directory: Path) -> list[str]:
    return [word.format(directory) for word in command]


@pytest.mark.parametrize(
    "command", [*READING, *(pytest.param(name, marks=MACHINE) for name in MEASURING)]
)
def test_a_spec_from_another_directory_is_refused_before_its_code_runs(
    cli: Cli, write: Callable[..., Path], tmp_path: Path, command: str
) -> None:
    elsewhere, here = write(where="elsewhere"), tmp_path / "here"
    here.mkdir()
    (elsewhere / "c.yaml").write_text("name: c\nnodes: 2\nmachine: {gpu: t4, gpus: 2}\nnetwork: {link: ethernet-10g}\n")  # fmt: skip
    arguments = format_command({**READING, **MEASURING}[command], elsewhere)
    done = cli(*arguments, cwd=here, status=2)
    assert f"{elsewhere}/own.workload.yaml names code: own_net:make" in done.stderr
    assert f"is not in the current directory, {here}" in done.stderr
    assert "--allow-code" in done.stderr
    assert not was_imported(elsewhere)
    assert list(here.iterdir()) in ([], [here / "out"])


@pytest.mark.parametrize(
    "command",
    [
        name if name in ("predict", "study") else pytest.param(name, marks=pytest.mark.soak)
        for name in READING
    ],
)
def test_allowed_code_is_imported_from_the_directory_of_its_spec(
    cli: Cli, write: Callable[..., Path], tmp_path: Path, command: str
) -> None:
    elsewhere, here = write(where="elsewhere"), tmp_path / "here"
    here.mkdir()
    (elsewhere / "c.yaml").write_text("name: c\nnodes: 2\nmachine: {gpu: t4, gpus: 2}\nnetwork: {link: ethernet-10g}\n")  # fmt: skip
    cli(*format_command(READING[command], elsewhere), "--allow-code", cwd=here)
    assert was_imported(elsewhere)
    # the permission was for one command
    cli(*format_command(READING["predict"], elsewhere), cwd=here, status=2)


@MACHINE
def test_ranks_import_allowed_code(cli: Cli, write: Callable[..., Path], tmp_path: Path) -> None:
    data = "def data():\n    return [(torch.zeros(16), 1)] * 8\nimport torch\n"
    elsewhere, here = write(NET + data, where="elsewhere"), tmp_path / "here"
    here.mkdir()
    bench = (*format_command(MEASURING["train"], elsewhere), "--time-per-point", "0.2 s", "--json")
    done = cli(*bench, "--allow-code", cwd=here)
    (run,) = json.loads(done.stdout)
    assert run["provenance"]["data_source"] == "own_net:data, 8 samples"
    assert run["profile"]["parameters"] == 16 * 4 + 4


@pytest.mark.parametrize(
    "command",
    [
        (*MEASURING["train"], "--dry-run"),
        (*MEASURING["train"], "--gpu", "t4", "--dry-run"),
        (*MEASURING["sweep"], "--dry-run"),
        (*MEASURING["relief"], "--dry-run"),
        (*MEASURING["fit"], "--dry-run"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("where", ["elsewhere", "here"])
def test_a_dry_run_imports_nothing(
    cli: Cli, write: Callable[..., Path], tmp_path: Path, command: tuple[str, ...], where: str
) -> None:
    project, here = write(), tmp_path / "here"
    here.mkdir()
    cli(*format_command(command, project), cwd=project if where == "here" else here)
    assert not was_imported(project)


def create_runs(make: MakeMeasurement, model: str, **more: object) -> list[Measurement]:
    spec = {"name": "own", "model": model}
    return [make(number, spec=spec, workload="own", **more) for number in range(3)]


def test_calibrate_imports_no_code_of_an_export(
    gpuyard_process: Cli, write: Callable[..., Path], make_measurement: MakeMeasurement
) -> None:
    project = write()
    for model in ("own_net:make", "os:abort", "sys:exit"):
        (project / "runs.jsonl").write_text(to_json_lines(create_runs(make_measurement, model)))
        done = gpuyard_process("calibrate", "--results", "runs.jsonl", cwd=project, status=1)
        assert f"no profile of {model}" in done.stderr
    assert not was_imported(project)


def test_a_dry_run_of_a_sweep_uses_the_stored_profile(
    cli: Cli, write: Callable[..., Path], make_measurement: MakeMeasurement, home: Path
) -> None:
    project = write()
    sweep = (*format_command(MEASURING["sweep"], project), "--dry-run", "--json")
    (planned,) = json.loads(cli(*sweep, cwd=project).stdout)["sweeps"]
    stored = make_measurement(key=planned["points"][0]["key"], workers=1, loss_last=1.0)
    ResultsStore(home / "results.sqlite").add(stored)
    (again,) = json.loads(cli(*sweep, cwd=project).stdout)["sweeps"]
    assert again["points"][0]["stored"]
    assert not was_imported(project)


def test_settings_that_depend_on_the_model_are_completed_when_it_runs(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = "nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 4), nn.Flatten()"
    project = write(f"from torch import nn\ndef make():\n    return nn.Sequential({layers})\n")
    monkeypatch.chdir(project)
    workload = read_workload("own.workload.yaml")
    planned = plan_sweep(workload, [1], [4], seconds_per_point=1.0, gpu="a100-sxm4-80gb")
    assert (planned.workload.precision, planned.synthetic) == (None, None)
    assert not was_imported(project)
    completed = complete_sweep(planned)
    assert completed.workload.precision == "tf32"  # PyTorch's default for convolutions there
    assert completed.synthetic is not None
    assert completed.synthetic.gpu == "a100-sxm4-80gb"


@MACHINE
def test_calibrate_uses_the_stored_profile_of_a_run(cli: Cli, write: Callable[..., Path]) -> None:
    project = write("import torch\ndef data():\n    return [(torch.zeros(16), 1)] * 64\n" + NET)
    bench = ("bench", "train", "own.workload.yaml", "--workers", "1", "--batch", "2,4,8,16")
    cli(*bench, "--time-per-point", "0.2 s", cwd=project)
    (project / "own_net.py").unlink()
    done = cli("calibrate", "--doubtful", "--force", "--dry-run", "--json", cwd=project)
    assert "left out" not in done.stdout
    (entry,) = json.loads(done.stdout)["calibration"]["hardware"]
    assert entry["lines"][0]["model"] == "own_net:make"


@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        ("import sys\nsys.exit(0)\n", "own_net.py:3: it calls exit(0)"),
        ("raise SystemExit\n", "exit(None)"),
        ("import os\nos._exit(0)\n", "status 0"),
        ("import os\nos.abort()\n", "SIGABRT"),
        ("import os\nprint('so far')\nos._exit(3)\n", "\n  so far"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--mine', required=True)\np.parse_args()\n",
            "exit(2)",
        ),
        ("import sys\ndef make():\n    sys.exit('no')\n", "own_net:make failed"),
        ("import os\nos.write(3, b'{}' * 10)\nos._exit(0)\n", "cannot profile own_net:make"),
        ("def make():\n    return input()\n", "EOFError"),
    ],
)
def test_code_that_exits_is_reported(
    cli: Cli, write: Callable[..., Path], code: str, fragment: str
) -> None:
    project = write(code)
    done = cli(*format_command(READING["predict"], project), cwd=project, status=2)
    assert fragment in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["study", "plan", "topo"])
def test_code_that_exits_does_not_end_a_command_successfully(
    cli: Cli, write: Callable[..., Path], command: str
) -> None:
    project = write("raise SystemExit(0)\n")
    done = cli(*format_command(READING[command], project), cwd=project, status=2)
    assert "exit(0)" in done.stderr


def test_code_neither_sees_arguments_nor_writes_to_the_output(
    cli: Cli, write: Callable[..., Path]
) -> None:
    printing_code = """
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("rest", nargs="*")
assert parser.parse_args().rest == [], sys.argv
print("p-rinted")
os.write(1, b"w-ritten")
os.system("echo e-choed")
"""
    project = write(printing_code + NET)
    done = cli(*format_command(READING["predict"], project), "--json", cwd=project)
    assert json.loads(done.stdout)["predictions"]
    for word in ("p-rinted", "w-ritten", "e-choed"):
        assert word not in done.stdout + done.stderr


def test_escape_sequences_of_code_are_made_visible(cli: Cli, write: Callable[..., Path]) -> None:
    project = write("import os\nprint('\\033]52;c;bWluZQ==\\007')\nos._exit(1)\n")
    done = cli(*format_command(READING["predict"], project), cwd=project, status=2)
    assert "\N{REPLACEMENT CHARACTER}]52" in done.stderr
    assert "\033" not in done.stderr


def test_code_that_times_out_is_killed_with_its_child_processes(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(
        "import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        "open('child', 'w').write(str(child.pid))\nimport os\nos.rename('child', 'child.pid')\n"
        "while True:\n    print('x' * 10_000)\n"
    )
    monkeypatch.chdir(project)
    wait = subprocess.Popen.wait

    def wait_for_child(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None:
            return wait(process)
        while not (project / "child.pid").exists():  # however slow this machine is
            time.sleep(0.05)
            assert process.poll() is None
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_for_child)
    with pytest.raises(GpuyardError, match="5 s"):
        profile_in_subprocess(read_workload("own.workload.yaml"), timeout_seconds=5)
    child = int((project / "child.pid").read_text())
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_code_is_killed_together_with_gpuyard(write: Callable[..., Path]) -> None:
    project = write(
        "import os, time\nopen('own', 'w').write(str(os.getpid()))\nos.rename('own', 'own.pid')\n"
        "while True:\n    time.sleep(0.1)\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "gpuyard", *format_command(READING["predict"], project)], cwd=project
    )
    wait_until((project / "own.pid").exists)
    code = psutil.Process(int((project / "own.pid").read_text()))
    program.kill()
    program.wait()
    wait_until(lambda: not code.is_running() or code.status() == psutil.STATUS_ZOMBIE)


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@MACHINE
@needs_two_cores
@pytest.mark.parametrize("launcher", ["direct", pytest.param("torchrun", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        ("import sys\nsys.exit(0)\n", "exit(0)"),
        ("import os\nos._exit(0)\n", "exited before its work was done"),
        (
            "import os\nfrom torch import nn\nclass make(nn.Linear):\n"
            "    def __init__(self):\n        super().__init__(16, 4)\n"
            "    def forward(self, x):\n        return super().forward(x) if len(x) < 7 else os._exit(0)\n",
            "exited before its work was done",
        ),
    ],
    ids=["exit", "_exit", "in a step"],
)  # fmt: skip
def test_a_rank_that_exits_early_is_an_error(
    cli: Cli, write: Callable[..., Path], code: str, fragment: str, launcher: str
) -> None:
    project = write(code)
    (project / "own.workload.yaml").write_text(WORKLOAD)
    bench = ("bench", "train", "own.workload.yaml", "--workers", "2", "--batch", "7")
    done = cli(
        *bench, "--time-per-point", "0.2 s", "--launcher", launcher, cwd=project,
        status=2 if "exit(" in fragment else 1,
    )  # fmt: skip
    assert fragment in done.stderr or "lost its connection to another rank" in done.stderr


class Terminal:
    """Runs gpuyard at a pseudo-terminal."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpuyard", *arguments],
            cwd=cwd, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True,
        )  # fmt: skip
        os.close(theirs)
        self.output = ""

    def wait_for(self, text: str) -> None:
        while text not in self.output:
            assert select.select([self._ours], [], [], 60)[0], self.output
            self.output += os.read(self._ours, 4096).decode()

    def answer(self, text: str) -> tuple[int, str]:
        os.write(self._ours, f"{text}\n".encode())
        out, _ = self._process.communicate(timeout=120)
        os.close(self._ours)
        return self._process.returncode, out


def test_gpuyard_asks_at_a_terminal(write: Callable[..., Path], tmp_path: Path) -> None:
    elsewhere, here = write(where="elsewhere"), tmp_path / "here"
    here.mkdir()
    command = (*format_command(READING["predict"], elsewhere), "--json")
    terminal = Terminal(*command, cwd=here)
    terminal.wait_for("Run it? [y/N]")
    assert "own.workload.yaml names code: own_net:make" in terminal.output
    assert f"{elsewhere}/own_net.py" in terminal.output
    assert terminal.answer("") == (2, "")
    assert not was_imported(elsewhere)
    terminal = Terminal(*command, cwd=here)
    terminal.wait_for("Run it? [y/N]")
    status, out = terminal.answer("y")
    assert status == 0
    assert json.loads(out)["predictions"]


def explain_refusal(
    directory: Path, monkeypatch: pytest.MonkeyPatch, cwd: Path | None = None
) -> str | None:
    monkeypatch.chdir(cwd or directory)
    workload = read_workload(str(directory / "own.workload.yaml"))
    try:
        check_allowed(workload)
    except CodeNotAllowed as error:
        return str(error)
    return None


def test_only_specs_in_the_project_are_trusted(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write()
    assert explain_refusal(project, monkeypatch) is None
    assert explain_refusal(project, monkeypatch, tmp_path) is None  # below
    (project / "deeper").mkdir()
    assert "is not in the current directory" in str(
        explain_refusal(project, monkeypatch, project / "deeper")
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "too wide to be one project" in str(explain_refusal(project, monkeypatch, tmp_path))
    link = tmp_path / "link"
    link.mkdir()
    (link / "own.workload.yaml").symlink_to(project / "own.workload.yaml")
    assert "is not in the current directory" in str(explain_refusal(link, monkeypatch))


@pytest.mark.parametrize("spelling", ["link", "/{}", "{}/.", "{}/deeper"])
def test_a_home_directory_is_recognized_however_it_is_spelled(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    project = write(where="Downloads")
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(tmp_path)
    monkeypatch.setenv("HOME", str(link) if spelling == "link" else spelling.format(tmp_path))
    assert "too wide to be one project" in str(explain_refusal(project, monkeypatch, tmp_path))
    assert explain_refusal(project, monkeypatch) is None


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_nothing_below_a_directory_where_every_user_may_write_is_trusted(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    project = write()
    tmp_path.chmod(mode)
    assert (
        explain_refusal(project, monkeypatch) is None
    )  # what is above the project is not imported
    assert f"in {tmp_path}," in str(explain_refusal(project, monkeypatch, tmp_path))
    project.chmod(mode)
    assert f"in {project}," in str(explain_refusal(project, monkeypatch))


def test_every_file_that_an_import_runs_is_checked(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write()
    inner = project / "outer_pkg" / "inner_pkg"
    inner.mkdir(parents=True)
    (inner / "net.py").write_text(NET)
    spec = project / "own.workload.yaml"
    spec.write_text(spec.read_text().replace("own_net:make", "outer_pkg.inner_pkg.net:make"))
    assert explain_refusal(project, monkeypatch) is None  # packages need no __init__.py
    for package in (inner, inner.parent):
        package.chmod(0o777)
        assert f"is in {package}," in str(explain_refusal(project, monkeypatch))
        package.chmod(0o755)
        planted = tmp_path / "planted.py"
        planted.write_text("")
        (package / "__init__.py").symlink_to(planted)
        message = str(explain_refusal(project, monkeypatch))
        assert f"{package}/__init__.py is not in the current directory" in message
        (inner / "net.py").rename(
            inner / "other.py"
        )  # the package runs before Python misses the module
        assert explain_refusal(project, monkeypatch) == message.replace(f" ({inner}/net.py)", "")
        (inner / "other.py").rename(inner / "net.py")
        (package / "__init__.py").unlink()
        (package / "__init__.py").write_text("")
        assert explain_refusal(project, monkeypatch) is None


def test_a_downloaded_file_is_not_trusted(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write()
    try:
        os.setxattr(project / "own_net.py", "user.xdg.origin.url", b"https://evil.example/net.py")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")
    message = str(explain_refusal(project, monkeypatch))
    assert "own_net.py was downloaded from https://evil.example/net.py" in message


def test_a_spec_cannot_set_its_own_path(tmp_path: Path) -> None:
    for key in ("file", "_file"):
        (tmp_path / "w.yaml").write_text(f"{WORKLOAD}{key}: ./mine.yaml\n")
        with pytest.raises(UserMistake, match=f"'{key}'"):
            read_workload(str(tmp_path / "w.yaml"))


def test_a_workload_inside_a_plan_has_the_path_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.yaml"
    inside = "workload: {name: own, model: 'own_net:make', dataset: {samples: 5}}"
    file.write_text(PLAN.replace("workload: own.workload.yaml", inside))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    workload = read_plan(file).workload
    assert isinstance(workload, Workload)
    with pytest.raises(CodeNotAllowed, match=r"p\.yaml names code"):
        check_allowed(workload)
    allow_code(file)
    check_allowed(workload)
