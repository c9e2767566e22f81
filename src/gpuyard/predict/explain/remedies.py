"""What would help one configuration, by how much, and how many GPUs are worth it with and without it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict.explain.any_platform import remedies_anywhere
from gpuyard.predict.explain.inputs import faster_inputs
from gpuyard.predict.explain.knee import DEFAULT_THRESHOLD, Knee, find_knee, placements_to_try
from gpuyard.predict.explain.links import other_links
from gpuyard.predict.explain.precisions import other_precisions
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import against_formulas
from gpuyard.predict.strategies.remedies import Proposal, Remedy
from gpuyard.predict.table import Placement, samples_per_second

_LEAST_GAIN = 1.03
_BATCH_FACTORS = (8, 4, 2)


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
    return _helpful(remedies_anywhere(there, prediction.placement))


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


def proposals(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """All but other and more GPUs, whether it helps or not."""
    if scenario.fits(here.gpus):
        yield from _bigger_batch(scenario, here)
    else:
        yield from _smaller_batch(scenario, here)
    if here.gpus > 1:
        for proposed in scenario.strategy.remedies:
            yield from proposed(scenario, here)
        if scenario.cluster is not None:
            yield from other_links(scenario, scenario.cluster, here)
    yield from faster_inputs(scenario, here)
    yield from other_precisions(scenario, here)


def _bigger_batch(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    for factor in _BATCH_FACTORS:
        batch = factor * scenario.workload.batch_per_gpu
        larger = scenario.with_batch(batch)
        if larger.fits(here.gpus):
            yield Proposal(
                f"{factor} × the batch ({batch} a GPU)",
                larger,
                f"an update sees {factor} × the samples: learning rate and accuracy may need care",
                larger.memory_bytes(here.gpus),
            )
            return


def _smaller_batch(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """The largest that fits."""
    batch = scenario.largest_batch(here.gpus)
    if batch:
        smaller = scenario.with_batch(batch)
        yield Proposal(
            f"a batch of {batch} a GPU",
            smaller,
            "an update sees fewer samples; accumulation makes up for it",
            smaller.memory_bytes(here.gpus),
        )


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
