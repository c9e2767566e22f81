"""Measures all nodes together: an all-reduce, halves of the nodes if it is slow, and a training step."""

from collections.abc import Callable, Sequence

from gpuyard.errors import GpuyardError
from gpuyard.measure.acceptance.bisect import bisect
from gpuyard.measure.acceptance.expected import predict_step
from gpuyard.measure.acceptance.pairs import judge_pairs
from gpuyard.measure.acceptance.plan import AcceptancePlan
from gpuyard.measure.acceptance.records import Check, PairRate, TrainingStep, WholeCluster
from gpuyard.measure.bench import measure
from gpuyard.measure.collectives.plan import plan_collectives
from gpuyard.measure.collectives.records import CollectivesBench
from gpuyard.measure.collectives.run import run_collectives
from gpuyard.measure.collectives.verdict import BELOW
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.run import run_sweep
from gpuyard.predictor.collectives import ring_all_reduce_seconds
from gpuyard.run.places import Place
from gpuyard.units import format_share

_REPEATS = 4


def measure_whole(
    plan: AcceptancePlan,
    place: Place,
    rates: Sequence[PairRate],
    store: ResultsStore,
    on_progress: ProgressCallback,
    *,
    names: Sequence[str],
    has_time: Callable[[], bool],
) -> tuple[WholeCluster, tuple[Check, ...]]:
    """Time an all-reduce over all nodes. If it is slow and no slow link explains it, find the nodes by halves."""
    whole = _measure(plan, place, store, on_progress)
    if whole.ratio < BELOW and has_time():  # a disturbance may have passed
        again = _measure(plan, place, store, on_progress)
        whole = max(whole, again, key=lambda each: each.ratio)
    if whole.ratio >= BELOW or _is_explained(plan, whole, rates, len(names)):
        return whole, ()
    if not has_time() or len(names) < 3:
        return whole, ()

    def measure_group(nodes: Sequence[int]) -> float:
        on_progress(ProgressUpdate(f"halves: {len(nodes)} nodes"))
        group = place.select(nodes)
        ratio = _measure(plan, group, store, on_progress).ratio
        if ratio < BELOW and has_time():
            ratio = max(ratio, _measure(plan, group, store, on_progress).ratio)
        return ratio

    bisection = bisect(range(len(names)), measure_group)
    return whole, tuple(_describe(bisection.nodes, bisection.between, whole, names, bisection.runs))


def _measure(
    plan: AcceptancePlan, place: Place, store: ResultsStore, on_progress: ProgressCallback
) -> WholeCluster:
    """Run the collectives bench, which stores its record, and compare it with the spec's network."""
    ranks = sum(place.ranks_by_node)
    bench_plan = plan_collectives(
        place, ranks, ["all_reduce"], [plan.all_reduce_bytes], repeats=_REPEATS
    )
    bench: CollectivesBench = measure(bench_plan, run_collectives, store, on_progress)
    (result,) = bench.results
    if not result.correct:
        raise GpuyardError(
            "the all-reduce gave a wrong result; check memory, network cards, and drivers"
        )
    fastest = min(result.repeats)
    expected = _predict_seconds(plan, ranks, result.bytes, bench.probe.latency_seconds)
    return WholeCluster(
        ranks=ranks,
        bytes=result.bytes,
        bus_bytes_per_second=result.bus_bytes_per_second * result.seconds / fastest,
        expected_seconds=expected if expected is not None else result.expected_seconds,
        seconds=fastest,
        ratio=(expected if expected is not None else result.expected_seconds) / fastest,
        bench=bench.id,
    )


def _predict_seconds(
    plan: AcceptancePlan, ranks: int, size: int, latency_seconds: float
) -> float | None:
    """Predict a ring all-reduce at the promised rate of the network."""
    rate = plan.promise.link_bytes_per_second
    if rate is None:
        return None
    hops = 2 * (ranks - 1) * latency_seconds
    return hops + float(ring_all_reduce_seconds(ranks, size, rate))


def _is_explained(
    plan: AcceptancePlan, whole: WholeCluster, rates: Sequence[PairRate], nodes: int
) -> bool:
    """Return whether the slowest link that the pairs found makes the all-reduce as slow as it is."""
    if not rates or plan.promise.link_bytes_per_second is None:
        return False
    verdict = judge_pairs(rates, plan.promise.link_bytes_per_second, nodes)
    slowest = min(
        [
            *(slow.bytes_per_second for slow in verdict.nodes),
            *(path.bytes_per_second for path in verdict.paths),
            verdict.reference,
        ]
    )
    return whole.ratio >= BELOW * min(1.0, slowest / plan.promise.link_bytes_per_second)


def _describe(
    nodes: Sequence[int],
    between: tuple[Sequence[int], Sequence[int]] | None,
    whole: WholeCluster,
    names: Sequence[str],
    runs: int,
) -> list[Check]:
    slow = f"the all-reduce reaches {format_share(whole.ratio)} of its prediction"
    if between is not None:
        groups = " and ".join(f"{names[group[0]]}…{names[group[-1]]}" for group in between)
        return [
            Check(
                phase="all",
                subject="all-reduce",
                grade="fail",
                text=f"{slow}; {groups} are fast alone and slow together ({runs} runs)",
                ratio=whole.ratio,
                next_step="check the links and switches between these groups, and their oversubscription",
            )
        ]
    return [
        Check(
            phase="all",
            node=names[node],
            subject="all-reduce",
            grade="fail",
            text=f"{slow}; groups with this node are slow, others are not ({runs} runs)",
            ratio=whole.ratio,
            next_step="check the cable, port, and negotiated speed of its link (ethtool, ibstat)",
        )
        for node in nodes
    ]


def measure_training(
    plan: AcceptancePlan,
    place: Place,
    store: ResultsStore,
    on_progress: ProgressCallback,
    seconds: float,
) -> TrainingStep:
    """Train on all nodes, with a synthetic GPU if there is none, and predict the same on the promised cluster."""
    real = all(place.gpus_by_node)
    workers, nodes = sum(place.ranks_by_node), len(place.nodes)
    sweep = plan_sweep(
        plan.workload,
        [workers],
        [plan.workload.batch_per_gpu],
        seconds_per_point=seconds,
        gpu=None if real else plan.promise.gpu.id,
        place=place,
    )
    (measured,) = run_sweep(
        sweep, store, on_event=lambda event: on_progress(event.progress), fresh=True
    )
    predicted = predict_step(
        plan.cluster, sweep.workload, nodes, workers // nodes, measured.batch_per_worker
    )
    return TrainingStep(
        workload=plan.workload.name,
        gpu=None if real else plan.promise.gpu.id,
        workers=workers,
        batch_per_worker=measured.batch_per_worker,
        samples_per_second=measured.samples_per_second,
        predicted=predicted.samples_per_second,
        low=predicted.low,
        high=predicted.high,
        measurement=measured.id,
    )
