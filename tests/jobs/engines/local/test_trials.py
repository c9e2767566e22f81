"""A sweep: every trial is tried on a little, then the one with the lowest loss gets the GPUs."""

import os
import sys
from dataclasses import replace

from gpuyard.jobs.engines.local.start import StartEnd, StartProgress, write_end, write_progress
from gpuyard.jobs.engines.local.store import Store
from gpuyard.jobs.engines.local.views import Reports, view_of
from gpuyard.jobs.progress import latest_loss
from gpuyard.steps.windows import StepWindow
from tests.jobs.engines.local.conftest import GPUS, Jobs, until

# a plain loop whose loss falls towards what it was told; a SIGTERM makes it write down how far it is
TRAINER = """
import os, pathlib, signal, sys, time
import gpuyard
floor = float(sys.argv[1])
kept = pathlib.Path(f"step-{floor}")
step = int(kept.read_text()) if kept.exists() else 0

def stop(*_):
    kept.write_text(str(step))
    sys.exit(143)

signal.signal(signal.SIGTERM, stop)
gpus = int(os.environ["GPUYARD_GPUS"])
print(gpus, flush=True)
while not pathlib.Path("may-end").exists():
    step += 1
    gpuyard.step(16 * gpus, loss=floor + 1 / step, number=step)
    time.sleep(0.02)
"""


def sizes(jobs: Jobs, handle: str) -> list[int]:
    """The GPUs of each start."""
    return [int(line) for line in jobs.logs(handle).split()]


def test_the_trial_with_the_lowest_reported_loss_gets_all_gpus(jobs: Jobs) -> None:
    (jobs.directory / "trainer.py").write_text(TRAINER)
    done = jobs.cli(
        "queue", "policy", "explore-then-focus", "--explore", "4 s", "--every", "500 ms"
    )
    assert done.returncode == 0, done.stderr
    hold = jobs.submit("--gpus", str(GPUS), "--", "sleep", "600")  # until all have come
    until(lambda: jobs.state(hold) == "running")
    trials = {
        floor: jobs.submit(
            *("--gpus", f"1..{GPUS}", "--checkpoint", str(jobs.directory)),
            *("--cwd", str(jobs.directory), "--", sys.executable, "trainer.py", str(floor)),
        )
        for floor in (3.0, 1.0, 2.0)
    }
    assert jobs.cli("cancel", hold).returncode == 0
    best = trials.pop(1.0)
    until(lambda: GPUS in sizes(jobs, best), "all GPUs for the best")
    assert sizes(jobs, best)[0] == 1, "it was tried on its least"
    for worse in trials.values():
        assert sizes(jobs, worse) == [1]
        status = jobs.status(worse)
        assert (status["state"], status["restarts"]) == ("queued", 1)
        assert status["reason"] == "was stopped to let others go on"
    until(lambda: (jobs.status(best)["loss"] or 9) < 1.5, "its loss")
    (jobs.directory / "may-end").touch()
    assert jobs.wait(best, *trials.values()) == 0, "the others go on when it has ended"
    for worse in trials.values():
        assert len(sizes(jobs, worse)) == 2


def test_what_a_trial_had_is_counted_over_all_of_its_starts(jobs: Jobs) -> None:
    handle = jobs.submit("--gpus", "2", "--", "true")
    assert jobs.wait(handle) == 0
    with Store(jobs.paths.store) as store:
        row = replace(store.rows()[0], state="queued", gpus=None, starts=3)
    for number, (begin, end) in enumerate(((100.0, 130.0), (500.0, 505.0), (900.0, None)), 1):
        start = jobs.paths.start(row.number, number)
        start.directory.mkdir(exist_ok=True)
        start.log.touch()
        os.utime(start.log, (910.0, 910.0))
        write_progress(start, StartProgress(1, 1, lease="a", gpus=(0, 1), started=begin))
        if end is not None:
            write_end(start, StartEnd("exit", end, 143))
    start.end.unlink(missing_ok=True)  # the last one was lost after what it printed
    view = view_of(row, Reports(jobs.paths), GPUS, 5000.0)
    assert view.attained_gpu_s == 2 * (30 + 5 + 10)


def test_a_trial_that_diverges_has_no_score() -> None:
    falling = [StepWindow(1, 1.0, 1.0, 1.0, loss=loss) for loss in (9.0, 5.0, 4.0, 3.0, 2.0, 1.0)]
    assert latest_loss(falling) == 3.0, "over the last reports: one batch says little"
    assert latest_loss([*falling, StepWindow(1, 1.0, 1.0, 1.0)]) is None
    assert latest_loss([]) is None
