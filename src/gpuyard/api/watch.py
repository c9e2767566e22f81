"""Judge a running training: is it as fast as it should be, and if not, why?"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.api.inputs import read_cluster
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.base import load_engine
from gpuyard.jobs.find_job import find_handle
from gpuyard.jobs.verdict import Expectation, judge
from gpuyard.report.answers.jobs.verdict import verdict_answer
from gpuyard.reporting.ranks import RankWindow, read_rank_log

if TYPE_CHECKING:
    from gpuyard.specs import Cluster, Workload


def watch(
    job: str | None = None,
    *,
    log: str | Path | None = None,
    workload: "str | Path | Workload | None" = None,
    on: "str | Path | Cluster | None" = None,
    strategy: str | None = None,
) -> Result[Row]:
    """Judge a job by its handle, or any log with the lines of `gpuyard.step()`.

    With `on` and a workload, the answer compares with the prediction; a job's own workload is the default.
    """
    if (job is None) == (log is None):
        raise UserMistake("name a job or --log FILE, not both")
    windows: Sequence[RankWindow]
    if log is not None:
        windows, name = read_rank_log(Path(log)), str(log)
    else:
        handle = find_handle(job or "")
        engine = load_engine(handle.engine)
        windows, name = engine.rank_reports(handle), str(handle)
        workload = workload or engine.job(handle).spec.workload
    expected = mfu = None
    if on is not None:
        if workload is None:
            raise UserMistake(
                "--on needs a workload to predict: add --workload, e.g. --workload resnet50"
            )
        expected, mfu = expect_step(windows, workload, on, strategy)
    verdict = judge(windows, expected)
    if verdict is None:
        raise GpuyardError(
            f"{name} has no reports after its warm-up yet: call gpuyard.step() in the training loop, and wait"
        )
    answer = verdict_answer(verdict, name, windows, expected, mfu)
    return Result(answer, wrap([asdict(rank) for rank in verdict.ranks]))


def expect_step(
    windows: Sequence[RankWindow], workload: Any, on: Any, strategy: str | None = None
) -> tuple[Expectation | None, float | None]:
    """Predict the step of a training with these ranks; also return the FLOPs of one sample, None if unknown."""
    from gpuyard.api.predict import Predictions, predict
    from gpuyard.hardware.clusters import resolve_machine
    from gpuyard.predictor.compute import resolve_precision
    from gpuyard.workloads import profile_model

    reports = [window for window in windows if window.samples and not window.warmup]
    if not reports:
        return None, None
    ranks = len({window.rank for window in windows})
    cluster = read_cluster(on)
    per_step = reports[-1].samples / reports[-1].steps
    result = predict(
        workload, on=cluster, gpus=ranks, batch=max(1, round(per_step / ranks)), strategy=strategy
    )
    if not isinstance(result, Predictions):
        raise UserMistake("watch compares only data-parallel training; leave out --on")
    row = result.rows[0]
    samples = row.batch_per_gpu * row.gpus
    expected = Expectation(
        samples / row.high,
        samples / row.low,
        row.step.compute_seconds,
        row.step.exposed_communication_seconds,
        float(samples),
    )
    from gpuyard.api.inputs import read_workload

    spec = read_workload(workload)
    profile, gpu = profile_model(spec), resolve_machine(cluster)[0]
    peak = gpu.peak_flops(resolve_precision(gpu, spec, profile))
    flops = 3 * profile.forward_flops * per_step / ranks
    return expected, None if not peak else flops / peak
