"""A sweep: every trial runs for a short time, then the one with the lowest loss gets the GPUs."""

import os
import sys
from dataclasses import replace

from gpuyard.jobs.engines.local.reports import StepReports, read_progress
from gpuyard.jobs.engines.local.start import create_lock
from gpuyard.jobs.engines.local.store import Store, StoredStart
from gpuyard.jobs.engines.local.transitions import close_dead_starts, record_progress
from gpuyard.jobs.engines.local.views import build_view
from gpuyard.reporting.windows import StepWindow, latest_loss
from tests.jobs.engines.local.conftest import GPUS, Jobs, until

# A loop whose loss falls towards its argument. On SIGTERM it saves its step.
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


def read_gpus_per_start(jobs: Jobs, handle: str) -> list[int]:
    return [int(line) for line in jobs.logs(handle).split()]


def test_the_trial_with_the_lowest_reported_loss_gets_all_gpus(jobs: Jobs) -> None:
    (jobs.directory / "trainer.py").write_text(TRAINER)
    done = jobs.cli(
        "queue", "policy", "explore-then-focus", "--explore", "4 s", "--every", "500 ms"
    )
    assert done.returncode == 0, done.stderr
    hold = jobs.submit("--gpus", str(GPUS), "--", "sleep", "600")  # until all trials are submitted
    until(lambda: jobs.state(hold) == "running")
    trials = {
        floor: jobs.submit(
            *("--gpus", f"1..{GPUS}", "--checkpoint-dir", str(jobs.directory)),
            *("--cwd", str(jobs.directory), "--", sys.executable, "trainer.py", str(floor)),
        )
        for floor in (3.0, 1.0, 2.0)
    }
    assert jobs.cli("cancel", hold).returncode == 0
    best = trials.pop(1.0)
    until(lambda: GPUS in read_gpus_per_start(jobs, best), "all GPUs for the best")
    assert read_gpus_per_start(jobs, best)[0] == 1, "it is first tried on one GPU"
    for worse in trials.values():
        until(lambda: jobs.state(worse) == "queued", "the stop of a worse trial")  # noqa: B023
        assert "stopped" in jobs.status(worse)["reason"]
        assert max(read_gpus_per_start(jobs, worse)) < GPUS
    until(lambda: (jobs.status(best)["loss"] or 9) < 1.5, "its loss")
    (jobs.directory / "may-end").touch()
    assert jobs.wait(best, *trials.values()) == 0, "the others continue when it has ended"
    for worse in trials.values():
        assert len(read_gpus_per_start(jobs, worse)) >= 2


def test_gpu_time_is_counted_over_all_starts_of_a_trial(jobs: Jobs) -> None:
    handle = jobs.submit("--gpus", "2", "--", "true")
    assert jobs.wait(handle) == 0
    with Store(jobs.paths.store) as store:
        for number, (started, ended) in enumerate(((100.0, 130.0), (500.0, 505.0)), 1):
            store.save_start(StoredStart(1, number, 2, started=started, ended=ended))
        store.update_job(jobs.stored(handle), state="queued", gpus=None, start_count=2)
        # the third start is lost after its last output
        with create_lock(jobs.paths.start(1, 3)):
            start = store.add_start(jobs.stored(handle), gpus=2)
            assert start is not None
            record_progress(store, replace(start, pid=1, process_start=1, started=900.0))
            assert jobs.stored(handle).gpu_seconds(5000.0) == 2 * (30 + 5 + 4100)
        log = jobs.paths.start(1, 3).log
        log.touch()
        os.utime(log, (910.0, 910.0))
        close_dead_starts(store, jobs.paths)
    stored, reports = jobs.stored(handle), StepReports(jobs.paths)
    view = build_view(stored, reports, read_progress(stored, reports, 5000.0), GPUS, 5000.0)
    assert view.attained_gpu_s == 2 * (30 + 5 + 10)


def test_a_trial_that_diverges_has_no_score() -> None:
    falling = [StepWindow(1, 1.0, 1.0, 1.0, loss=loss) for loss in (9.0, 5.0, 4.0, 3.0, 2.0, 1.0)]
    assert latest_loss(falling) == 3.0, "it is averaged over the last reports"
    assert latest_loss([*falling, StepWindow(1, 1.0, 1.0, 1.0)]) is None
    assert latest_loss([]) is None
