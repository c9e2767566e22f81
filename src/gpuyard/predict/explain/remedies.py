"""What would help one configuration, by how much, and how many GPUs are worth it with and without it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict.explain.knee import DEFAULT_THRESHOLD, Knee, find_knee, placements_to_try
from gpuyard.predict.explain.proposals import BATCH_FACTORS, proposals
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import against_formulas
from gpuyard.predict.strategies.remedies import ACCUMULATED_STEPS, Remedy
from gpuyard.predict.table import Placement, StepTable, samples_per_second
from gpuyard.specs import ExchangeOptions

_LEAST_GAIN = 1.03


@dataclass(frozen=True)
class Knees:
    """How many GPUs are worth it, as it is and with the remedy that gets most out of them."""

    as_it_is: Knee
    relieved: Knee | None
    remedy: str | None


def relieve(scenario: PlatformScenario, prediction: Prediction) -> tuple[Remedy, ...]:
    """What would help one predicted configuration, the most helpful first."""
    if scenario.cluster is not None:
        return relieve_with_knees(scenario, prediction)[0]
    there = scenario.with_batch(prediction.batch_per_gpu)
    if not there.fits(prediction.gpus):
        return ()
    return _helpful(_remedies_anywhere(there, prediction.placement))


def relieve_with_knees(
    scenario: PlatformScenario, prediction: Prediction, threshold: float = DEFAULT_THRESHOLD
) -> tuple[tuple[Remedy, ...], Knees]:
    """Remedies that fit and gain enough, and how many GPUs are worth it with and without one of them.

    Where it does not fit as it is, that are those with which it does. What remedies gain is by the formulas. Where
    figures say otherwise than the formulas do, it is a gain on the figures.
    """
    scenario, here = scenario.with_batch(prediction.batch_per_gpu), prediction.placement
    today = float(scenario.samples_per_second([here])[0])
    fits = scenario.fits(here.gpus)
    tried = [proposal for proposal in proposals(scenario, here) if proposal.fits(here)]
    offered = _offered(scenario, here)
    counts = [placement.gpus for placement in offered]
    # of what the formulas say: all of it where nothing was measured and no framework is named
    reached, reached_here = np.ones(len(offered)), 1.0
    if prediction.before is not None:
        reached = against_formulas(scenario, offered)
        reached_here = prediction.samples_per_second / today
    knee = find_knee(counts, scenario.samples_per_second(offered) * reached, threshold)
    found = [replace(proposal.weighed(here, today), makes_fit=not fits) for proposal in tried]
    if fits:
        more = _more(scenario, here, knee, reached_here)
        found += [replace(remedy, gain=remedy.samples_per_second / today) for remedy in more]
    found = [
        replace(remedy, samples_per_second=remedy.samples_per_second * reached_here)
        for remedy in found
    ]
    helpful = _helpful(found)
    worth = {remedy.what for remedy in helpful}
    moved = [
        (
            find_knee(counts, proposal.scenario.samples_per_second(offered) * reached, threshold),
            proposal.what,
        )
        for proposal in tried
        if proposal.what in worth
    ]
    best = max(moved, key=lambda pair: pair[0].samples_per_second, default=(None, None))
    return helpful, Knees(knee, *best)


def _helpful(found: Iterable[Remedy]) -> tuple[Remedy, ...]:
    enough = [remedy for remedy in found if remedy.gain >= _LEAST_GAIN or remedy.makes_fit]
    return tuple(sorted(enough, key=lambda remedy: -remedy.gain))


def _offered(scenario: PlatformScenario, here: Placement) -> tuple[Placement, ...]:
    platform, most = scenario.platform, scenario.strategy.most_machines
    nodes = platform.nodes if most is None else min(most, platform.nodes)
    in_machine = platform.gpus_per_node // (platform.other_jobs + 1)  # other jobs have the rest
    return placements_to_try(nodes, in_machine, here.gpus_per_node if here.nodes > 1 else None)


def _more(
    scenario: PlatformScenario, here: Placement, knee: Knee, reached: float
) -> Iterator[Remedy]:
    """By the formulas, of which the configuration as it is reaches a share."""
    table = scenario.at([here])
    yield Remedy("GPUs twice as fast", float(samples_per_second(table.doubled("gpu"))[0]), 0.0)
    if knee.gpus > here.gpus:
        what = f"{knee.gpus} GPUs of the cluster (the knee)"
        yield Remedy(what, knee.samples_per_second / reached, 0.0, adds_gpus=True)
    elif here.gpus == knee.gpus == knee.most_gpus and here.nodes > 1:
        # all that are there are worth it: as many machines again, on the same network
        rate = float(samples_per_second(replace(table, nodes=table.nodes * 2))[0])
        yield Remedy("twice as many machines", rate, 0.0, adds_gpus=True)


def _remedies_anywhere(scenario: PlatformScenario, here: Placement) -> Iterator[Remedy]:
    """On hardware that is known only by what was measured on it, where parts have no name; whether they help or not."""
    table = scenario.at([here])
    today = _rate(table)
    for what, changed in _changes(scenario, table, here):
        rate = _rate(changed)
        yield Remedy(what, rate, rate / today)


def _rate(table: StepTable) -> float:
    return float(samples_per_second(table)[0])


def _changes(
    scenario: PlatformScenario, table: StepTable, here: Placement
) -> Iterator[tuple[str, StepTable]]:
    yield "GPUs twice as fast", table.doubled("gpu")
    if here.gpus > 1:
        yield from _cheaper_exchange(scenario, table)
    batch = scenario.workload.batch_per_gpu
    for factor in BATCH_FACTORS:
        if scenario.with_batch(batch * factor).fits(here.gpus):
            larger = replace(table, batch_per_gpu=table.batch_per_gpu * factor)
            yield f"{factor} × the batch ({batch * factor} a GPU)", larger
            break
    if np.isfinite(table.storage_bytes_per_second[0]):
        yield "storage twice as fast", table.doubled("storage")


def _cheaper_exchange(
    scenario: PlatformScenario, table: StepTable
) -> Iterator[tuple[str, StepTable]]:
    if table.sent_share == 1:
        yield "gradients sent as 16-bit numbers", replace(table, sent_share=table.sent_share / 2)
    if scenario.strategy.refusal(ExchangeOptions(accumulate=ACCUMULATED_STEPS)) is None:
        seldom = replace(table, accumulate=table.accumulate * ACCUMULATED_STEPS)
        yield f"gradients exchanged every {ACCUMULATED_STEPS} steps (accumulation)", seldom
    if table.nodes[0] > 1:
        yield "a network twice as fast", table.doubled("network")
    if table.gpus_per_node[0] > 1:
        yield "links inside the machine twice as fast", table.doubled("pcie")
