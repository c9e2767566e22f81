"""The example that grows during training, with real torch and real ranks: its loss is that of an uninterrupted run."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.share.setup import set_up
from gpuyard.workloads.digit_clips import FOUNDING_SPEAKERS
from tests.command_line import ROOT
from tests.jobs.engines.local.conftest import GPUS, Jobs, jobs, until
from tests.workloads.test_digit_clips import REAL_CLIPS, write_wav

__all__ = ["jobs"]
pytestmark = pytest.mark.soak
EXAMPLE = ROOT / "examples" / "elastic_digits.py"
_STEP = re.compile(r"^step (\d+) loss (\d+\.\d+) workers (\d+)$", re.MULTILINE)


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    if REAL_CLIPS.exists():
        return REAL_CLIPS
    (tmp_path / "clips").mkdir()
    for digit, speaker in itertools.product(range(10), FOUNDING_SPEAKERS):
        write_wav(tmp_path / "clips" / f"{digit}_{speaker}_0.wav", 3000 + 900 * digit)
    return tmp_path / "clips"


def torchrun(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "torch.distributed.run", *arguments)


def test_a_job_that_grows_has_the_loss_of_an_uninterrupted_run(
    jobs: Jobs, home: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    set_up(home / "share", fake_gpus=GPUS, topology="workstation", grace_seconds=0.5)
    assert jobs.cli("queue", "policy", "min-time", "--every", "2 s").returncode == 0
    hold = jobs.submit("--gpus", str(GPUS - 1), "--", "sleep", "6000")
    until(lambda: jobs.state(hold) == "running")
    training = (str(EXAMPLE), "--data", str(clips), "--batch", "8", "--steps", "100000")
    (jobs.directory / "elastic.job.yaml").write_text(
        "cwd: .\ncommand: [x]\nworkload: spoken-digits-conv\nsamples: 800000\ngpus: 1..2\n"
        "checkpoint: {directory: checkpoints, time: 120 s, restart: 1 s}\n"
    )
    handle = jobs.submit(str(jobs.directory / "elastic.job.yaml"), "--", *torchrun(*training))

    def read_losses() -> dict[int, tuple[float, int]]:
        steps = _STEP.findall(jobs.logs(handle))
        assert [int(step) for step, _, _ in steps] == list(range(1, len(steps) + 1))
        return {int(step): (float(loss), int(workers)) for step, loss, workers in steps}

    until(lambda: len(read_losses()) >= 8, "steps of one worker")
    assert jobs.cli("cancel", hold).returncode == 0
    until(lambda: sum(w == 2 for _, w in read_losses().values()) >= 8, "steps of two workers")
    assert jobs.cli("cancel", handle).returncode == 0
    assert jobs.wait(handle) == 1
    assert jobs.status(handle)["restarts"] == 1
    losses = read_losses()
    assert {workers for _, workers in losses.values()} == {1, 2}
    uninterrupted = subprocess.run(
        torchrun(
            *("--standalone", "--nproc-per-node=1", *training[:-1], str(len(losses))),
            *("--checkpoint", str(jobs.directory / "uninterrupted")),
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = {int(step): float(loss) for step, loss, _ in _STEP.findall(uninterrupted.stdout)}
    assert {step: loss for step, (loss, _) in losses.items()} == pytest.approx(expected, rel=1e-3)
