"""What is odd about figures of several GPUs: those that contradict each other, and those that are not used."""

from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import (
    Point,
    Spot,
    by_configuration,
    measured_points,
    reason_against,
)

# runs of one configuration differ by some per cent; more than that, and they are not the same training
_APART = 1.1
_NAMED = 3


def points_words(scenario: PlatformScenario) -> str:
    """A sentence or two, or nothing."""
    if scenario.gpu is None:
        return ""
    groups = by_configuration(measured_points(scenario))
    said = [_contradiction(spot, points) for spot, points in groups.items() if _apart(points)]
    unused = [
        f"{known.gpus} × {known.gpu}: {reason}"
        for known in scenario.workload.measured
        if known.gpus > 1 and (reason := reason_against(known, scenario))
    ]
    if unused:
        more = len(unused) - _NAMED
        named = "; ".join(unused[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
        said.append(f"Not used of what was measured: {named}.")
    return " ".join(said)


def _apart(points: list[Point]) -> bool:
    found = [point.samples_per_second for point in points]
    return max(found) > _APART * min(found)


def _contradiction(spot: Spot, points: list[Point]) -> str:
    placement, batch = spot
    where = "1 node" if placement.nodes == 1 else f"{placement.nodes} nodes"
    found = [point.samples_per_second for point in points]
    return (
        f"Caveat: {placement.gpus} GPUs on {where} at a batch of {batch} were measured at {_short(min(found))} and at "
        f"{_short(max(found))} samples/s. The interval reaches to both; measure again, and keep the figure of the training "
        "that you ask about."
    )


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
