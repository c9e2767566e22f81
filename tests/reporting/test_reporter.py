"""Reports of a training loop: their contents, their number, and that they never disturb the training."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpuyard.reporting import reporter
from gpuyard.reporting.ranks import parse_rank_windows, read_rank_log
from gpuyard.reporting.reporter import MARKER, RANK_MARKER, Reporter, create_reporter
from gpuyard.reporting.windows import StepsFile, StepWindow, parse_window
from tests.command_line import ROOT


class Loop:
    """A training loop with a fake clock, and the lines that it reported."""

    def __init__(self, workers: int = 1) -> None:
        self.now = 100.0
        self.lines: list[str] = []
        self.reporter = Reporter(
            self.lines.append, {"start": "a"}, workers=workers, clock=lambda: self.now
        )

    def run(self, steps: int, seconds: float, samples: float = 64) -> None:
        for _ in range(steps):
            self.now += seconds
            self.reporter.step(samples)

    @property
    def windows(self) -> list[StepWindow]:
        windows = [parse_window(line) for line in self.lines]
        assert None not in windows
        return [window for window in windows if window is not None]


def test_warm_up_is_reported_separately_and_the_first_step_is_not_timed() -> None:
    loop = Loop()
    loop.run(1, seconds=40.0)  # a compiler ran before it
    loop.run(10, seconds=0.5)
    loop.run(100, seconds=0.1)
    loop.reporter.close()
    first, *rest = loop.windows
    assert (first.warmup, first.steps) == (True, 10)
    assert first.seconds == pytest.approx(5.0)
    assert [window.warmup for window in rest] == [False] * len(rest)
    assert sum(window.steps for window in rest) == 100
    assert rest[-1].steps_done == 111
    assert rest[-1].samples_done == 111 * 64


def test_slow_steps_have_a_short_warm_up() -> None:
    loop = Loop()
    loop.run(6, seconds=60.0)
    assert [(window.warmup, window.steps) for window in loop.windows] == [
        (True, 3),
        (False, 1),
        (False, 1),
    ]


def test_an_evaluation_between_two_steps_does_not_change_the_speed() -> None:
    loop = Loop()
    loop.run(11, seconds=0.1)
    loop.run(40, seconds=0.1)
    loop.run(1, seconds=30.0)
    loop.run(40, seconds=0.1)
    loop.reporter.close()
    assert all(w.samples_per_second == pytest.approx(640) for w in loop.windows if w.steps > 2)
    assert sum(window.seconds for window in loop.windows) == pytest.approx(39.0)


def test_samples_of_all_workers_are_reported() -> None:
    loop = Loop(workers=8)
    loop.run(11, seconds=0.1)
    (window,) = loop.windows
    assert (window.workers, window.samples) == (8, 10 * 64 * 8)


def test_a_long_training_has_few_lines() -> None:
    loop = Loop()
    loop.run(40_000, seconds=0.01)
    assert len(loop.lines) < 100
    assert all(w.step_seconds == pytest.approx(0.01) for w in loop.windows)
    slow_loop = Loop()
    slow_loop.run(20_000, seconds=130.0)
    assert len(slow_loop.lines) < 20_000
    assert slow_loop.windows[-1].seconds == 130.0


def test_threads_lose_no_step() -> None:
    lines: list[str] = []
    counting = Reporter(lines.append, {})

    def train() -> None:
        for _ in range(5000):
            counting.step(2)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counting.close()
    last = parse_window(lines[-1])
    assert last is not None
    assert (last.steps_done, last.samples_done) == (20_000, 40_000)


def test_a_loss_that_is_not_finite_leaves_the_line_readable() -> None:
    loop = Loop()
    loop.run(10, seconds=0.1)
    loop.reporter.step(64, loss=float("nan"))
    loop.now += 1
    loop.reporter.step(64, number=501, total=900, loss=float("inf"))
    loop.reporter.close()
    last = loop.windows[-1]
    assert (last.loss, last.number, last.total) == (None, 501, 900)


@pytest.mark.parametrize("wrong", ["x", None, float("nan"), -1, [], 1e300])
def test_a_wrong_argument_does_not_stop_the_training(wrong: Any) -> None:
    loop = Loop()
    for _ in range(12):
        loop.now += 0.1
        loop.reporter.step(wrong, wrong, wrong, wrong)
    loop.reporter.close()
    assert [window.steps for window in loop.windows] == [10, 1]
    assert loop.windows[-1].samples_done == 0


def test_a_signal_handler_may_call_step_during_a_report() -> None:
    """Without a reentrant lock, the nested call would wait forever."""
    lines: list[str] = []

    def write_and_step(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            nested.step(1)

    nested = Reporter(write_and_step, {})
    for _ in range(12):
        nested.step(1)
    nested.close()
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("environment", "reports"),
    [
        ({}, False),
        ({"GPUYARD_JOB": "u"}, False),
        ({"GPUYARD_STEPS": "f"}, True),
        ({"GPUYARD_REPORT": "stdout"}, True),
        ({"GPUYARD_REPORT": "stdout", "RANK": "1"}, True),
        ({"GPUYARD_STEPS": "f", "SLURM_PROCID": "3"}, True),
        ({"GPUYARD_STEPS": "f", "RANK": "0", "SLURM_PROCID": "3"}, True),
        ({"GPUYARD_STEPS": "f", "RANK": "none"}, True),
    ],
)
def test_every_rank_of_a_job_reports(environment: dict[str, str], reports: bool) -> None:
    assert (create_reporter(environment) is not None) == reports


@pytest.mark.parametrize(
    ("environment", "samples"),
    [
        ({"WORLD_SIZE": "8"}, 80),
        ({"SLURM_NTASKS": "8"}, 10),  # a batch script that starts one process
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "0"}, 80),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 40),
        ({"WORLD_SIZE": "0"}, 10),
    ],
)
def test_the_number_of_workers_comes_from_the_launcher(
    environment: dict[str, str], samples: int, tmp_path: Path
) -> None:
    created = create_reporter({"GPUYARD_STEPS": str(tmp_path / "steps"), **environment})
    assert created is not None
    for _ in range(12):
        created.step(1)
    assert StepsFile(tmp_path / "steps").read()[0].samples == samples


LOOP = """
import sys, time, gpuyard
for _ in range(14):
    time.sleep(0.001)
    gpuyard.step(samples=32)
heavy = {'numpy', 'pydantic', 'torch', 'rich', 'typer', 'psutil'} & set(sys.modules)
print('trained', sorted(heavy))
"""


def run_loop(script: str = LOOP, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )


def test_nothing_is_reported_outside_of_a_job() -> None:
    done = run_loop()
    assert (done.stdout, done.stderr) == ("trained []\n", "")


def test_in_a_job_the_file_has_all_steps_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "steps"
    variables = {"GPUYARD_STEPS": str(file), "GPUYARD_JOB": "u-1", "WORLD_SIZE": "4", "RANK": "0"}
    done = run_loop(**variables, GPUYARD_GPUS="8", GPUYARD_NODES="2", LOCAL_WORLD_SIZE="2")
    assert (done.stdout, done.stderr) == ("trained []\n", "")
    run_loop(**variables)  # the job is restarted
    reader = StepsFile(file)
    windows = reader.read()
    assert [window.steps for window in windows] == [10, 3, 10, 3]
    assert len({window.start for window in windows}) == 2
    assert {window.job for window in windows} == {"u-1"}
    assert [(w.gpus, w.nodes, w.workers) for w in windows[1:3]] == [(8, 2, 4), (4, 1, 4)]
    assert windows[1].samples_done == 14 * 32 * 4
    assert windows[0].testbed is not None
    assert windows[0].testbed["cores"] >= 1
    assert windows[1].testbed is None
    assert file.stat().st_mode & 0o777 == 0o600
    assert reader.read() == []


def test_lines_go_to_stdout_on_request() -> None:
    done = run_loop(GPUYARD_REPORT="stdout")
    first, trained, last = done.stdout.splitlines()
    assert trained == "trained []"
    assert json.loads(first.removeprefix(MARKER))["warmup"] is True
    assert json.loads(last.removeprefix(MARKER))["steps_done"] == 14


def test_an_unwritable_file_is_reported_once_and_training_continues(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("unchanged")
    link = tmp_path / "steps"
    link.symlink_to(target)
    done = run_loop(GPUYARD_STEPS=str(link))
    assert done.stdout == "trained []\n"
    assert done.stderr.count(f"gpuyard: cannot report steps to {link}") == 1
    assert target.read_text() == "unchanged"


def test_a_forked_worker_does_not_report_its_parents_steps(tmp_path: Path) -> None:
    file = tmp_path / "steps"
    script = LOOP + (
        "import os\n"
        "child = os.fork()\n"
        "if not child:\n    sys.exit(0)\n"  # with its exit handlers
        "os.waitpid(child, 0)\n"
    )
    run_loop(script, GPUYARD_STEPS=str(file))
    assert sum(window.steps for window in StepsFile(file).read()) == 13


def test_step_is_a_lazy_name_of_the_package() -> None:
    import gpuyard

    assert gpuyard.step is reporter.step
    with pytest.raises(AttributeError, match="no attribute 'stepp'"):
        gpuyard.stepp  # type: ignore[attr-defined]  # noqa: B018


def test_checkpoints_are_reported_and_are_in_no_step_time() -> None:
    loop = Loop()
    loop.run(31, seconds=0.1)
    loop.now += 8.0
    loop.reporter.add_checkpoint(8.0)
    loop.run(30, seconds=0.1)
    loop.reporter.close()
    assert sum(window.checkpoints for window in loop.windows) == 1
    (window,) = (window for window in loop.windows if window.checkpoints)
    assert window.checkpoint_seconds == 8.0
    assert window.seconds > 8.0
    assert window.step_seconds == pytest.approx(0.1)


def test_startup_and_checkpoints_of_a_real_process(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    program = (
        "import time, gpuyard\n"
        "time.sleep(0.3)\n"
        "for i in range(15):\n"
        "    gpuyard.step(samples=4)\n"
        "    if i == 12:\n"
        "        with gpuyard.checkpoint():\n"
        "            time.sleep(0.2)\n"
    )
    environment = {**os.environ, "GPUYARD_STEPS": str(steps), "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    windows = StepsFile(steps).read()
    assert windows[0].startup_seconds is not None
    assert windows[0].startup_seconds >= 0.3
    assert windows[1].startup_seconds is None
    assert sum(window.checkpoint_seconds for window in windows) >= 0.2


def test_other_ranks_report_to_their_own_file_and_only_about_themselves(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    program = (
        "import time, gpuyard\n"
        "for batch in gpuyard.batches(range(30)):\n"
        "    with gpuyard.exchange():\n"
        "        time.sleep(0.004)\n"
        "    time.sleep(0.002)\n"
        "    gpuyard.step(samples=4)\n"
    )
    for rank in ("0", "1"):
        environment = {
            **os.environ, "GPUYARD_STEPS": str(steps), "PYTHONPATH": str(ROOT / "src"),
            "RANK": rank, "WORLD_SIZE": "2",
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert all(window.workers == 2 for window in StepsFile(steps).read())
    assert not StepsFile(tmp_path / "steps.ranks").read()  # throughput is that of rank 0 alone
    windows = [window for window in read_rank_log(steps) if not window.warmup]
    assert {window.rank for window in windows} == {0, 1}
    for window in windows:
        assert window.exchange_seconds is not None
        assert window.exchange_seconds >= 0.004
        assert window.input_seconds is not None
        assert window.compute_seconds >= 0.0015
        assert window.host


def test_broken_rank_lines_are_skipped() -> None:
    good = RANK_MARKER + json.dumps({"rank": 3, "steps": 5, "step_seconds": 0.1, "at": 5})
    bad = [
        RANK_MARKER + "{", RANK_MARKER + "[]", RANK_MARKER + json.dumps({"rank": 1}), "", MARKER,
        RANK_MARKER + json.dumps({"rank": -1, "steps": 5, "step_seconds": 0.1}),
        RANK_MARKER + json.dumps({"rank": 1, "steps": 5, "step_seconds": "0.1"}),
        RANK_MARKER + json.dumps({"rank": 1, "steps": 5, "step_seconds": 1e300}),
        RANK_MARKER + json.dumps({"rank": 10**9, "steps": 5, "step_seconds": 1}),
    ]  # fmt: skip
    (window,) = parse_rank_windows([*bad, f"[node2] {good}"])
    assert (window.rank, window.compute_seconds) == (3, 0.1)
