"""Find the ranks of a running training that stopped reporting."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_rough_seconds

_MIN_SECONDS = 120.0
_GAPS = 3.0  # times the longest pause between two reports so far, such as an evaluation
_MAX_NAMED = 4


@dataclass(frozen=True)
class Silence:
    """Ranks that stopped reporting, when they last did, and for how long they have been silent."""

    ranks: tuple[int, ...]
    since: float
    seconds: float
    everyone: bool

    @property
    def sentence(self) -> str:
        """Return e.g. "Rank 3 has not reported since 14:05, for 12 min; the others still do."."""
        since = f"since {datetime.fromtimestamp(self.since):%H:%M}"
        silent = f"{since}, for {format_rough_seconds(self.seconds)}"
        if self.everyone:
            return f"Stuck: no rank has reported a step {silent}; it hangs, or does something else."
        named = ", ".join(str(rank) for rank in self.ranks[:_MAX_NAMED])
        more = len(self.ranks) - _MAX_NAMED
        if len(self.ranks) == 1:
            return f"Rank {named} has not reported {silent}; the others still do."
        tail = f" and {more} more" if more > 0 else ""
        return f"Ranks {named}{tail} have not reported {silent}; the others still do."


def find_silence(windows: Sequence[RankWindow], now: float | None = None) -> Silence | None:
    """Find ranks that stopped reporting; `now` is the time if the training still runs.

    Clocks of machines may differ by hours, so the time between the first and the last report of each rank is compared.
    """
    by_rank: dict[int, list[float]] = {}
    for window in windows:
        by_rank.setdefault(window.rank, []).append(window.at)
    newest = max(times[-1] for times in by_rank.values())
    patience = {rank: _find_patience(times) for rank, times in by_rank.items()}
    if now is not None and now - newest > max(patience.values()):
        return Silence(tuple(sorted(by_rank)), newest, now - newest, everyone=True)
    begun = {window.rank for window in windows if window.warmup}
    if begun == {0}:  # of many other ranks, only the newest reports are read
        del by_rank[0]
    spans = {rank: times[-1] - times[0] for rank, times in by_rank.items()}
    if len(spans) < 2:
        return None
    usual = max(spans.values()) if len(spans) < 3 else median(spans.values())
    silent = {rank: usual - span for rank, span in spans.items() if usual - span > patience[rank]}
    if not silent:
        return None
    ranks = tuple(sorted(silent))
    since = max(by_rank[rank][-1] for rank in ranks)
    return Silence(ranks, since, min(silent.values()), everyone=False)


def _find_patience(times: Sequence[float]) -> float:
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return max(_MIN_SECONDS, _GAPS * max(gaps, default=0.0))
