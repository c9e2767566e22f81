"""Why one configuration is as fast as it is: in words, as a time line, with remedies and the knee."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gpuyard.predict.explain.knee import DEFAULT_THRESHOLD
from gpuyard.predict.explain.remedies import Knees, relieve_with_knees
from gpuyard.predict.explain.timeline import TimeLine, time_line
from gpuyard.predict.prediction import Choke, Prediction
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import measured_points
from gpuyard.predict.strategies.remedies import Remedy
from gpuyard.predict.table import StepTable, step_parts
from gpuyard.predict.transport import Pipe
from gpuyard.units import (
    format_bit_rate,
    format_byte_rate,
    format_bytes,
    format_number,
    format_seconds,
    format_share,
)

_NAMES: dict[Choke, str] = {
    "gpu": "the GPUs",
    "network": "the links between the machines",
    "pcie": "the links inside the machine",
    "storage": "the disks that samples are read from",
    "host": "the CPUs of the host",
}


@dataclass(frozen=True)
class Why:
    """One configuration, explained."""

    gpus: int
    batch_per_gpu: int
    choke: Choke
    sentences: tuple[str, ...]
    timeline: TimeLine
    remedies: tuple[Remedy, ...]
    knee: Knees
    fits: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    scenario: PlatformScenario, prediction: Prediction, *, threshold: float = DEFAULT_THRESHOLD
) -> Why:
    """Everything that there is to say about one prediction of a described cluster."""
    scenario = scenario.with_batch(prediction.batch_per_gpu)
    table = scenario.at([prediction.placement])
    drawn = time_line(table)
    remedies, knees = relieve_with_knees(scenario, prediction, threshold)
    return Why(
        gpus=prediction.gpus,
        batch_per_gpu=prediction.batch_per_gpu,
        choke=prediction.choke,
        sentences=(
            *_does_not_fit(scenario, prediction.gpus),
            *_words(scenario, prediction, drawn),
            _choke(table, prediction),
            *_knee(knees, prediction.fits is not False),
        ),
        timeline=drawn,
        remedies=remedies,
        knee=knees,
        fits=prediction.fits is not False,
    )


def _does_not_fit(scenario: PlatformScenario, gpus: int) -> Iterator[str]:
    if not scenario.fits(gpus):
        lacking = memory_shortage(scenario, gpus)
        yield f"It does not fit: {lacking}. What follows holds for a GPU with the memory."


def memory_shortage(scenario: PlatformScenario, gpus: int) -> str:
    """What a GPU's memory lacks for the batch, where it does not fit."""
    there = scenario.platform.memory_bytes or 0.0
    needed, most = scenario.memory_bytes(gpus), scenario.largest_batch(gpus)
    name = scenario.gpu.name if scenario.gpu else "GPU"
    return (
        f"a batch of {scenario.workload.batch_per_gpu} needs {needed:,.0f} "
        f"bytes ({format_bytes(needed)}) of a GPU's memory, the {name} has "
        f"{there:,.0f} ({format_bytes(there)}); "
        + (f"a batch of up to {most} would fit" if most else "not even one sample fits")
    )


def _words(scenario: PlatformScenario, prediction: Prediction, drawn: TimeLine) -> Iterator[str]:
    step = prediction.step
    machines = f" in {prediction.nodes} machines" if prediction.nodes > 1 else ""
    yield (
        f"{_gpus(prediction.gpus)}{machines} at a batch of {prediction.batch_per_gpu} each would do "
        f"{format_number(prediction.samples_per_second)} samples/s, "
        f"{format_share(prediction.scaling_efficiency)} of perfect scaling: "
        f"{format_share(step.compute_seconds / step.seconds)} of a step of "
        f"{format_seconds(step.seconds)} is compute."
    )
    if drawn.exchange_seconds > 0:
        yield _exchange(scenario, prediction, drawn)
        passes = prediction.accumulate * prediction.local_sgd
        if passes > 1:
            yield f"There is one exchange in {passes} steps; the times are their mean."
    if prediction.beside:
        yield (
            f"Ports, PCIe, storage and cores are shared with {_jobs(prediction.beside)} on the same "
            "machines, as if all exchanged at the same time."
        )
    if step.input_seconds > 0:
        yield (
            f"{_share(step.input_seconds, step.seconds)} of it "
            f"({format_seconds(step.input_seconds)}) is waiting for input."
        )


def _choke(table: StepTable, prediction: Prediction) -> str:
    if prediction.choke == "none":
        return "There is no single choke: no part alone, twice as fast, would save 5 % of the step."
    # both by the formulas: a step that was measured may take longer for reasons that no part has
    seconds, now = (
        float(step_parts(one).step_seconds[0]) for one in (table.doubled(prediction.choke), table)
    )
    return (
        f"The choke is {_NAMES[prediction.choke]}: twice as fast, they would shorten the step by "
        f"{format_share(1 - seconds / now)}, more than any other part would."
    )


def _exchange(scenario: PlatformScenario, prediction: Prediction, drawn: TimeLine) -> str:
    step, exposed = prediction.step, prediction.step.exposed_communication_seconds
    buckets = drawn.lane("exchange")
    size = sum(bar.size_bytes or 0.0 for bar in buckets)
    packs = f" in {len(buckets)} buckets" if len(buckets) > 1 else ""
    what = (
        f"{_share(exposed, step.seconds)} of it ({format_seconds(exposed)}) is waiting for "
        f"{format_bytes(size)} of gradients{packs} over {_way(scenario, prediction)}: "
    )
    alone = f"the exchange alone takes {format_seconds(drawn.exchange_seconds)}"
    if scenario.strategy.hides_nothing:
        return f"{what}{alone}, and {scenario.strategy.hides_nothing}."
    passes = prediction.accumulate * prediction.local_sgd
    if prediction.before is not None and exposed * passes > drawn.exchange_seconds:
        known = (
            "was measured"
            if measured_points(scenario)
            else f"is what was published of {scenario.workload.framework}"
        )
        return f"{what}{alone}, the rest {known}, and no formula explains it."
    hidden = max(0.0, drawn.exchange_seconds - exposed * passes)
    share = format_share(hidden / drawn.exchange_seconds)
    return f"{what}{alone}, and {share} of that hides behind backward."


def _way(scenario: PlatformScenario, prediction: Prediction) -> str:
    between = scenario.platform.between
    if prediction.nodes > 1 and between is not None:
        pipe = between(prediction.nodes)
        return f"{pipe.name}, of which an exchange gets {format_bit_rate(pipe.bytes_per_second)}"
    inside: Pipe = scenario.platform.inside(prediction.gpus_per_node)
    return f"{_lower(inside.name)} at {format_byte_rate(inside.bytes_per_second)}"


def _lower(name: str) -> str:
    """ "4 GPUs over PCIe" → "PCIe": how many there are has been said."""
    return name.split(" over ", 1)[-1]


def _knee(knees: Knees, fits: bool) -> Iterator[str]:
    knee = knees.as_it_is
    if knee.most_gpus == 1:
        return
    yield knee.sentence
    better = knees.relieved
    if better is not None and better.gpus != knee.gpus:
        best = f"With the remedy that gets most out of them, {knees.remedy}"
        yield (
            f"{best if fits else f'With {knees.remedy}, which fits'}, it is at "
            f"{_gpus(better.gpus)} ({format_number(better.samples_per_second)} samples/s)."
        )


def _jobs(count: int) -> str:
    return "1 identical job" if count == 1 else f"{count} identical jobs"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _share(part: float, whole: float) -> str:
    share = part / whole
    return format_share(share) if share >= 0.005 or share == 0 else "less than 1 %"
