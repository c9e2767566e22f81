"""One colour and one symbol a platform, the same in every chart of a report."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuyard.study.result import StudyResult, WorkloadResult

# Okabe and Ito, "Color Universal Design" (2008), which any colour vision can tell apart; without
# black and yellow and with a lighter blue, to stand out from white paper and a dark screen alike
COLOURS = ("#1a80c4", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
SYMBOLS = ("circle", "rect", "triangle", "diamond", "pin", "roundRect", "arrow")
NEUTRAL = "#8a8f98"


@dataclass(frozen=True)
class Look:
    """How everything of one platform is drawn."""

    colour: str
    symbol: str


Looks = Mapping[str, Look]


def here_platform(workload: WorkloadResult) -> str:
    """What this machine is called in the study."""
    named = (
        *(curve.platform for curve in workload.curves if curve.here),
        *(f.platform for f in workload.verdict.findings if f.basis == "measured"),
        *(epoch.platform for epoch in workload.epoch_times if epoch.basis == "measured"),
    )
    return named[0] if named else "this machine"


def looks_of(result: StudyResult) -> dict[str, Look]:
    """A look for every platform, this machine first; symbols go on changing where colours repeat."""
    platforms: dict[str, None] = {}
    for workload in result.workloads:
        if workload.measured or any(curve.here for curve in workload.curves):
            platforms.setdefault(here_platform(workload))
    for workload in result.workloads:
        for curve in workload.curves:
            platforms.setdefault(curve.platform)
        for epoch in workload.epoch_times:
            platforms.setdefault(epoch.platform)
    return {
        platform: Look(COLOURS[i % len(COLOURS)], SYMBOLS[i % len(SYMBOLS)])
        for i, platform in enumerate(platforms)
    }
