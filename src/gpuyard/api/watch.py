"""Judge a running training: is it as fast as it should be, and if not, why?"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import read_cluster, read_workload
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.base import load_engine
from gpuyard.jobs.find_job import find_handle
from gpuyard.jobs.judged_run import (
    JudgedRun,
    TrainingPrice,
    count_gpus,
    expect_speed,
    find_ideal_seconds,
    find_last_window,
    find_price,
    find_reported_ideal_seconds,
    judge_run,
)
from gpuyard.jobs.verdict import Expectation
from gpuyard.report.answers.jobs.verdict import verdict_answer
from gpuyard.reporting.ranks import RankWindow, read_rank_log
from gpuyard.units import parse_usd_per_hour

if TYPE_CHECKING:
    from gpuyard.specs import Cluster, Workload


def watch(
    job: str | None = None,
    *,
    log: str | Path | None = None,
    workload: "str | Path | Workload | None" = None,
    on: "str | Path | Cluster | None" = None,
    strategy: str | None = None,
    price: str | float | None = None,
) -> Result[Row]:
    """Judge a job by its handle, or any log with the lines of `gpuyard.step()`.

    With `on` and a workload, the answer compares with the prediction; a job's own workload is the default. `price` is that
    of all machines of the training, like "$98/h"; the default is the cheapest in the catalog for its GPUs.
    """
    if job is not None and log is not None:
        raise UserMistake("name a job or --log FILE, not both")
    if job is None and log is None:
        raise UserMistake("name the job to judge, like local://1, or its output with --log FILE")
    windows: Sequence[RankWindow]
    if log is not None:
        windows, name, speed, now = read_rank_log(Path(log)), str(log), None, None
    else:
        handle = find_handle(job or "")
        engine = load_engine(handle.engine)
        windows, name = engine.rank_reports(handle), str(handle)
        speed = engine.expected_speed(handle)
        now = time.time() if engine.status(handle).state == "running" else None
        workload = workload or engine.job(handle).spec.workload
    hourly = None
    if price is not None:
        hourly = TrainingPrice(parse_usd_per_hour(price), "given price")
    if on is not None:
        if workload is None:
            raise UserMistake(
                "--on needs a workload to predict: add --workload, e.g. --workload resnet50"
            )
        run = _judge_on(
            windows, workload, read_cluster(on), strategy=strategy, price=hourly, now=now
        )
    else:
        ideal_seconds = None
        if workload is not None:
            ideal_seconds = find_reported_ideal_seconds(windows, read_workload(workload))
        run = judge_run(
            windows,
            expect_speed(windows, speed),
            ideal_seconds=ideal_seconds,
            price=hourly,
            on_gpus=job is not None,
            now=now,
        )
    if run is None:
        raise GpuyardError(
            f"{name} has no reports after its warm-up yet: call gpuyard.step() in the training loop, and wait"
        )
    return Result(verdict_answer(run, name), wrap([asdict(rank) for rank in run.verdict.ranks]))


def _judge_on(
    windows: Sequence[RankWindow],
    workload: "str | Path | Workload",
    cluster: "Cluster",
    *,
    strategy: str | None,
    price: TrainingPrice | None,
    now: float | None,
) -> JudgedRun | None:
    """Judge a training on this cluster against its prediction."""
    from gpuyard.hardware.clusters import resolve_machine
    from gpuyard.workloads import profile_model

    gpu, machine = resolve_machine(cluster)
    expected = expect_step(windows, workload, cluster, strategy)
    spec = read_workload(workload)
    return judge_run(
        windows,
        expected,
        ideal_seconds=find_ideal_seconds(windows, spec, profile_model(spec), gpu),
        price=price or find_price(gpu, count_gpus(windows), machine.gpus),
        now=now,
    )


def expect_step(
    windows: Sequence[RankWindow],
    workload: "str | Path | Workload",
    cluster: "Cluster",
    strategy: str | None = None,
) -> Expectation | None:
    """Predict the step of a training with these ranks; None before its warm-up has ended."""
    from gpuyard.api.predict import Predictions, predict

    last = find_last_window(windows)
    if last is None:
        return None
    ranks = len({window.rank for window in windows})
    batch = max(1, round(last.samples / last.steps / ranks))
    result = predict(workload, on=cluster, gpus=ranks, batch=batch, strategy=strategy)
    if not isinstance(result, Predictions):
        raise UserMistake("watch compares only data-parallel training; leave out --on")
    row = result.rows[0]
    samples = row.batch_per_gpu * row.gpus
    exchange = max(row.exchange_seconds, row.step.exposed_communication_seconds)
    return Expectation(
        samples / row.high,
        samples / row.low,
        row.step.compute_seconds,
        exchange,
        float(samples),
    )
