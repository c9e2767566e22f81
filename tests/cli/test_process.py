"""gpuyard in its own process: start, exit, and concurrent use.

The other tests run commands inside their own process; here both are compared, command by command.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from gpuyard import __version__
from gpuyard.cli.app import app
from tests.command_line import ROOT, run_here, run_process
from tests.conftest import Cli

STUDY = (
    "{name: p, workloads: [resnet50], measure: null, clusters: [{cluster: dgx-a100, gpus: [1, 8]}]}"
)
# with those below, at least one of each command
LINES = """
--help
accept 2x1xt4@1G --lab 2x1Gbit --dry-run
bench train resnet18 --dry-run
calibrate
catalog gpus t4
cost --rent $1.50/h --buy $8000 --hours-per-year 2000 --json
doctor --jsn
facility examples/rack.cluster.yaml --json
goodput llama-3-8b --on 8xh100 --json
help predict
init --examples
lab up --nodes 3 --link 10Gbit --dry-run
plan examples/resnet50.plan.yaml
playbook --researchers 12 --gpus 32 --load spiky
predict resnet50 --on dgx-a100 --json
predict resnet50 --on dgx-a10
predict
prices
results list
schema study
simulate examples/traces/team.csv --on 2x4 --policy fifo,min-time
stack lock --requirements pytorch --cpu-only
topo --preset dual-root
validate --table horovod
version
"""
# sentences, lists and help texts that end in the same few lines of code as those above
MORE_LINES = """
audit
cancel local:17
data fetch spoken-digit
deploy status
horovod --help
lease --fro 2h
logs local://17 --jsn
notebook list --jsn
queue policy fifi
release
reserve list --jsn
retry
serve --host 192.0.2.7
results add nowhere.log --workload resnet50
share setup --fake-gpus 65
status --jsn x
study nowhere.study.yaml
submit --dry-run
train spoken-digits-linear --dry-run
usage --jsn
wait local://17
watch local://17
who --help
"""
SHORT, LONG = LINES.strip().splitlines(), MORE_LINES.strip().splitlines()


def test_every_command_is_compared() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    compared = {line.split()[0] for line in SHORT + LONG}
    assert compared >= set(root.list_commands(typer.Context(root)))


@pytest.mark.parametrize(
    "line", [*SHORT, *(pytest.param(line, marks=pytest.mark.soak) for line in LONG)]
)
def test_a_process_prints_the_same_as_the_command_inside_the_tests(line: str) -> None:
    arguments = shlex.split(line)
    here = run_here(*arguments, cwd=ROOT, environment=os.environ)
    process = run_process(*arguments, cwd=ROOT, environment=os.environ)
    assert process.stdout == here.stdout
    assert process.stderr == here.stderr
    assert process.returncode == here.returncode


def test_the_installed_command_starts() -> None:
    script = Path(sys.executable).with_name("gpuyard")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"gpuyard {__version__}\n"


def test_a_command_leaves_nothing_behind_in_the_tests_process(cli: Cli, tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        handlers = (signal.getsignal(signal.SIGINT), sys.excepthook)
        return dict(os.environ), Path.cwd(), [*sys.path], [*sys.argv], handlers, sys.stdout

    (tmp_path / "own_net.py").write_text(
        "import sys\nfrom torch import nn\nprint('own', file=sys.stderr)\nmake = lambda: nn.Linear(8, 3)\n"
    )
    (tmp_path / "own.workload.yaml").write_text(
        "{name: own, model: 'own_net:make', input: {shape: [8]}, target: {classes: 3}}"
    )
    before = state()
    arguments = ("--debug", "predict", "own.workload.yaml", "--on", "dgx-a100", "--json")
    for _ in range(2):
        done = cli(*arguments, cwd=tmp_path, environment={"GPUYARD_HOME": "elsewhere"})
        assert json.loads(done.stdout)["predictions"]
        assert done.stderr == ""  # its code ran in another process
    assert state() == before
    assert "own_net" not in sys.modules


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_traceback(how: str) -> None:
    option, environment = (
        (("--debug",), os.environ)
        if how == "option"
        else ((), {**os.environ, "GPUYARD_DEBUG": "1"})
    )
    done = run_process(*option, "catalog", "gpus", "v100", cwd=ROOT, environment=environment)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "no GPU is called 'v100'" in done.stderr.splitlines()[-1]
    assert not done.stdout


def test_messages_go_to_stderr_and_only_the_document_to_stdout(
    gpuyard_process: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "results.jsonl"
    done = gpuyard_process("results", "export", "--output", str(file))
    assert done.stdout == ""
    assert "0 measurements written" in done.stderr
    assert json.loads(gpuyard_process("results", "list", "--json").stdout) == []


def run_script(script: str) -> str:
    """Return the output of a script in a new Python process."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys, typer, gpuyard.cli.app as cli; typer.main.get_command(cli.app).list_commands(None); "
        "assert 'gpuyard.cli.measure.bench' in sys.modules; "
        "print([m for m in ('torch', 'numpy', 'pydantic', 'jinja2', 'ruamel.yaml', 'psutil') if m in sys.modules])"
    )
    assert run_script(script) == "[]"


def test_a_prediction_loads_only_what_it_needs() -> None:
    others = (
        "api.plotting", "catalog.fabric", "cli.measure.bench", "cli.study", "predictor.calibration.document",
        "predictor.explain.why", "predictor.large.prediction", "predictor.power", "predictor.software_stacks.evidence",
        "report.answers.clusters", "specs.plan", "specs.site", "workloads.code_trust",
    )  # fmt: skip
    assert [name for name in others if find_spec(f"gpuyard.{name}") is None] == []
    script = (
        "import sys, contextlib, io; sys.argv = ['gpuyard', 'predict', 'gpt2', '--on', 'dgx-h100', '--json'];"
        "from gpuyard.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
        "assert 'gpuyard.cli.predict' in sys.modules\n"
        f"print([name for name in {others} if f'gpuyard.{{name}}' in sys.modules])"
    )
    assert run_script(script) == "[]"


def test_planning_needs_no_torch() -> None:
    """A None in sys.modules makes `import torch` fail as if it were not installed."""
    script = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['gpuyard', 'predict', 'gpt2', '--on', 'dgx-h100', '--json'];"
        "from gpuyard.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["predictions"]


def test_a_closed_pipe_is_not_an_error() -> None:
    command = [sys.executable, "-m", "gpuyard", "catalog", "prices", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""


def test_concurrent_processes_leave_one_complete_report(tmp_path: Path) -> None:
    (tmp_path / "p.study.yaml").write_text(STUDY)
    command = [sys.executable, "-m", "gpuyard", "study", "p.study.yaml", "--output-dir", "out"]
    with contextlib.ExitStack() as until_end:
        running = [
            until_end.enter_context(
                subprocess.Popen(
                    command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
            for _ in range(3)
        ]
        outputs = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outputs
    assert json.loads((tmp_path / "out" / "study.json").read_text(encoding="utf-8"))["workloads"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "study.json",
    ]
