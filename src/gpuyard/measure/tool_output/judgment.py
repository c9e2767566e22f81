"""One judged reading: normal or not, against what, and likely causes."""

from dataclasses import dataclass
from typing import Literal

from gpuyard.measure.record import Cause

ReadingVerdict = Literal["normal", "slow", "fast", "wrong", "not judged"]
MAX_JUDGED_SPAN = 10  # a rate inside a wider expectation cannot be judged


@dataclass(frozen=True)
class Judgment:
    """One reading and its verdict; rates are in bytes per second."""

    series: str  # what was measured, like "all-reduce over 8 GPUs"
    label: str  # which of its readings: a size or a link
    verdict: ReadingVerdict
    measured: float | None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str = ""  # the model that the expectation comes from
    causes: tuple[Cause, ...] = ()
    reason: str = ""  # the reason if it is not judged
    size_bytes: int | None = None  # of a message

    @property
    def subject(self) -> str:
        return ", ".join(filter(None, [self.series, self.label]))

    @property
    def ratio(self) -> float | None:
        """The measured over the expected rate; None if the expectation is too vague for it."""
        if self.verdict == "not judged" or self.is_vague or not self.measured or not self.expected:
            return None
        return self.measured / self.expected

    @property
    def is_vague(self) -> bool:
        """True if intact machines differ too much for a rate within their range to say anything."""
        return bool(self.low and self.high and self.high / self.low > MAX_JUDGED_SPAN)
