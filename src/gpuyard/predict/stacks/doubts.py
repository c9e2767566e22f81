"""What is odd about figures of several GPUs: those that contradict each other, those that no software explains, and
those that are not used."""

from dataclasses import replace

from gpuyard.predict.interval import reach_of
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import (
    Point,
    Spot,
    by_configuration,
    measured_points,
    reason_against,
)
from gpuyard.predict.table import Configurations, samples_per_second, step_parts
from gpuyard.specs import DEFAULT_EXCHANGE

# runs of one configuration differ by some per cent; more than that, and they are not the same training
_APART = 1.1
# so many times beyond either end of the interval of any stack; of all published rows none is beyond it twice
_BEYOND = 3.0
_NAMED = 3


def points_words(scenario: PlatformScenario) -> str:
    """A sentence or two, or nothing."""
    if scenario.gpu is None:
        return ""
    groups = by_configuration(measured_points(scenario))
    said = [_contradiction(spot, points) for spot, points in groups.items() if _apart(points)]
    said += [_beyond(scenario, spot, points) for spot, points in groups.items()]
    unused = [
        f"{known.gpus} × {known.gpu}: {reason}"
        for known in scenario.workload.measured
        if known.gpus > 1 and (reason := reason_against(known, scenario))
    ]
    if unused:
        more = len(unused) - _NAMED
        named = "; ".join(unused[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
        said.append(f"Not used of what was measured: {named}.")
    return " ".join(filter(None, said))


def _apart(points: list[Point]) -> bool:
    found = [point.samples_per_second for point in points]
    return max(found) > _APART * min(found)


def _beyond(scenario: PlatformScenario, spot: Spot, points: list[Point]) -> str:
    """Of a figure that is so far from what any software makes of these machines that it is more likely a slip of the
    pen, another unit or another batch."""
    alone = scenario.platform.unshared or scenario.platform
    table = replace(scenario, exchange=DEFAULT_EXCHANGE, platform=alone).table(
        Configurations.of([spot])
    )
    reach = reach_of(table, step_parts(table), scenario.line.relative_uncertainty)
    low, high = (float(end[0]) for end in reach.ends(samples_per_second(table)))
    for point in points:
        rate = point.samples_per_second
        if not low / _BEYOND <= rate <= high * _BEYOND:
            return (
                f"Caveat: {_where(spot)} were measured at {_short(rate)} samples/s, where {_short(low)} to {_short(high)} are "
                "expected of any software: check the figure, its unit and its batch."
            )
    return ""


def _where(spot: Spot) -> str:
    placement, batch = spot
    nodes = "1 node" if placement.nodes == 1 else f"{placement.nodes} nodes"
    return f"{placement.gpus} GPUs on {nodes} at a batch of {batch}"


def _contradiction(spot: Spot, points: list[Point]) -> str:
    found = [point.samples_per_second for point in points]
    return (
        f"Caveat: {_where(spot)} were measured at {_short(min(found))} and at "
        f"{_short(max(found))} samples/s. The interval reaches to both; measure again, and keep the figure of the training "
        "that you ask about."
    )


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
