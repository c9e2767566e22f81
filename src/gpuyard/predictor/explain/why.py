"""Explain the speed of one configuration: sentences, a timeline, remedies, and the knee."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gpuyard.predictor.explain.remedies import Knees, find_remedies_and_knees
from gpuyard.predictor.explain.timeline import StepTimeline, build_timeline
from gpuyard.predictor.knee import DEFAULT_THRESHOLD
from gpuyard.predictor.predicted import Choke, Prediction, describe_choke
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.software_stacks.evidence import find_measured_points
from gpuyard.predictor.strategies.remedies import Remedy
from gpuyard.predictor.transport import Pipe
from gpuyard.units import (
    format_bit_rate,
    format_byte_rate,
    format_bytes,
    format_number,
    format_seconds,
    format_share,
)
from gpuyard.workloads.profiles import advise_sharding


@dataclass(frozen=True)
class Why:
    """The explanation of one configuration's speed."""

    gpus: int
    batch_per_gpu: int
    choke: Choke
    sentences: tuple[str, ...]
    timeline: StepTimeline
    remedies: tuple[Remedy, ...]
    knee: Knees
    fits: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    scenario: PlatformScenario, prediction: Prediction, *, threshold: float = DEFAULT_THRESHOLD
) -> Why:
    """Explain one prediction for a described cluster."""
    scenario = scenario.change_batch(prediction.batch_per_gpu)
    timeline = build_timeline(scenario.build_placement_table([prediction.placement]))
    remedies, knees = find_remedies_and_knees(scenario, prediction, threshold)
    return Why(
        gpus=prediction.gpus,
        batch_per_gpu=prediction.batch_per_gpu,
        choke=prediction.choke,
        sentences=(
            *_describe_misfit(scenario, prediction.gpus),
            *_describe_step(scenario, prediction, timeline),
            describe_choke(scenario, prediction),
            *_describe_knee(knees, prediction.fits is not False),
        ),
        timeline=timeline,
        remedies=remedies,
        knee=knees,
        fits=prediction.fits is not False,
    )


def _describe_misfit(scenario: PlatformScenario, gpus: int) -> Iterator[str]:
    if not scenario.fits(gpus):
        shortage = describe_memory_shortage(scenario, gpus)
        yield f"It does not fit: {shortage}. The rest assumes a GPU with enough memory."


def describe_memory_shortage(scenario: PlatformScenario, gpus: int) -> str:
    """Describe how much memory a batch that does not fit needs, and the largest batch that fits."""
    available = scenario.platform.memory_bytes or 0.0
    needed, largest_batch = scenario.memory_bytes(gpus), scenario.largest_batch(gpus)
    name = scenario.gpu.name if scenario.gpu else "GPU"
    return (
        f"a batch of {scenario.workload.batch_per_gpu} needs {needed:,.0f} "
        f"bytes ({format_bytes(needed)}) of a GPU's memory, but the {name} has "
        f"{available:,.0f} ({format_bytes(available)}); "
        + (
            f"a batch of up to {largest_batch} would fit"
            if largest_batch
            else "not even one sample fits"
        )
        + (f"; {advice}" if (advice := advise_sharding(scenario.workload)) else "")
    )


def _describe_step(
    scenario: PlatformScenario, prediction: Prediction, timeline: StepTimeline
) -> Iterator[str]:
    step = prediction.step
    machines = f" in {prediction.nodes} machines" if prediction.nodes > 1 else ""
    yield (
        f"{_count_gpus(prediction.gpus)}{machines} at a batch of {prediction.batch_per_gpu} each would process "
        f"{format_number(prediction.samples_per_second)} samples/s, "
        f"{format_share(prediction.scaling_efficiency)} of perfect scaling: "
        f"{format_share(step.compute_seconds / step.seconds)} of a step of "
        f"{format_seconds(step.seconds)} is compute."
    )
    if timeline.exchange_seconds > 0:
        yield _describe_exchange(scenario, prediction, timeline)
        passes = prediction.accumulate * prediction.local_sgd
        if passes > 1:
            yield f"There is one exchange in {passes} steps; the times are their mean."
    if prediction.other_jobs:
        jobs = (
            "1 identical job"
            if prediction.other_jobs == 1
            else f"{prediction.other_jobs} identical jobs"
        )
        yield (
            f"Ports, PCIe, storage, and cores are shared with {jobs} on the same "
            "machines, as if all exchanged at the same time."
        )
    if step.input_seconds > 0:
        yield (
            f"{_format_share(step.input_seconds, step.seconds)} of it "
            f"({format_seconds(step.input_seconds)}) is waiting for input."
        )


def _describe_exchange(
    scenario: PlatformScenario, prediction: Prediction, timeline: StepTimeline
) -> str:
    step, exposed = prediction.step, prediction.step.exposed_communication_seconds
    buckets = timeline.lane("exchange")
    size = sum(bar.size_bytes or 0.0 for bar in buckets)
    in_buckets = f" in {len(buckets)} buckets" if len(buckets) > 1 else ""
    wait = (
        f"{_format_share(exposed, step.seconds)} of it ({format_seconds(exposed)}) is waiting for "
        f"{format_bytes(size)} of gradients{in_buckets} over {_describe_path(scenario, prediction)}: "
    )
    alone = f"the exchange alone takes {format_seconds(timeline.exchange_seconds)}"
    if scenario.strategy.no_overlap_reason:
        return f"{wait}{alone}, and {scenario.strategy.no_overlap_reason}."
    passes = prediction.accumulate * prediction.local_sgd
    if prediction.before is not None and exposed * passes > timeline.exchange_seconds:
        source = (
            "was measured"
            if find_measured_points(scenario)
            else f"comes from published results of {scenario.workload.framework}"
        )
        return f"{wait}{alone}, the rest {source}, and no formula explains it."
    hidden = max(0.0, timeline.exchange_seconds - exposed * passes)
    share = format_share(hidden / timeline.exchange_seconds)
    return f"{wait}{alone}, and {share} of that hides behind backward."


def _describe_path(scenario: PlatformScenario, prediction: Prediction) -> str:
    between = scenario.platform.between
    if prediction.nodes > 1 and between is not None:
        pipe = between(prediction.nodes)
        return f"{pipe.name}, of which an exchange gets {format_bit_rate(pipe.bytes_per_second)}"
    inside: Pipe = scenario.platform.inside(prediction.gpus_per_node)
    link = inside.name.split(" over ", 1)[-1]  # "4 GPUs over PCIe" → "PCIe"
    return f"{link} at {format_byte_rate(inside.bytes_per_second)}"


def _describe_knee(knees: Knees, fits: bool) -> Iterator[str]:
    knee = knees.current
    if knee.max_gpus == 1:
        return
    yield knee.sentence
    better = knees.with_remedy
    if better is not None and better.gpus != knee.gpus:
        best = f"With the remedy that gets most out of them, {knees.remedy}"
        yield (
            f"{best if fits else f'With {knees.remedy}, which fits'}, it is at "
            f"{_count_gpus(better.gpus)} ({format_number(better.samples_per_second)} samples/s)."
        )


def _count_gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _format_share(part: float, whole: float) -> str:
    share = part / whole
    return format_share(share) if share >= 0.005 or share == 0 else "less than 1%"
