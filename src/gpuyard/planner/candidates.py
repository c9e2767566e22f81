"""The table of candidates: every offer with every configuration of its shape.

Throughput is predicted, and corrected by measurements if there are any for several GPUs of that kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuyard.choices import LargePrecision
from gpuyard.errors import UserMistake
from gpuyard.planner.costs import Costs, Premises, PriceRows, SiteLimit, price_candidates
from gpuyard.planner.machine_shapes import MachineShape
from gpuyard.planner.offers import CloudData, Offer, OfferColumns, PlannedRuns
from gpuyard.planner.result import MissingRate
from gpuyard.planner.servers import FAST_NETWORK, SLOW_NETWORK
from gpuyard.planner.throughput import Grid, Throughputs, widen_intervals
from gpuyard.planner.training import Training
from gpuyard.predictor.explain.next_run import NextRun
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import Acquisition

Booleans = npt.NDArray[np.bool_]
PriceEnd = Literal["low", "high"]
_MAX_CANDIDATES = 2_000_000


@dataclass(frozen=True)
class Candidates:
    """All candidates: arrays with one entry per candidate for its offer, its prediction, and its costs.

    The limits that depend on an offer are computed once per offer and cached.
    """

    plan: Plan
    runs: PlannedRuns
    premises: Premises
    data: CloudData
    samples_per_run: float
    tokens_per_sample: int | None  # of a transformer that is known by its shape
    training: Training
    offers: tuple[Offer, ...]
    columns: OfferColumns
    throughputs: Throughputs
    missing_rates: tuple[MissingRate, ...]
    offer: Integers  # index into `offers`, ascending
    row: Integers  # index into `throughputs`
    costs: Costs

    def __len__(self) -> int:
        return len(self.offer)

    @property
    def tokens_per_run(self) -> float | None:
        """The tokens of one run, for a transformer that is known by its shape."""
        return (
            None
            if self.tokens_per_sample is None
            else self.samples_per_run * self.tokens_per_sample
        )

    @property
    def grid(self) -> Grid:
        return self.training.grid

    def precision(self, number: int) -> LargePrecision:
        """Return the precision in which a candidate trains."""
        precisions = self.training.precisions(self.offers[self.offer[number]].server.gpu.id)
        return precisions[int(self.throughputs.precision[self.row[number]])]

    def suggest_next_run(self, number: int) -> NextRun | None:
        """Suggest the smaller run that would narrow a candidate's prediction most."""
        shape = self.offers[self.offer[number]].shape
        row = int(self.row[number])
        return self.training.suggest_next_run(shape, self.precision(number), self.throughputs, row)

    @cached_property
    def precisions(self) -> tuple[LargePrecision, ...]:
        """All precisions that are tried on some GPU."""
        tried = {o.server.gpu.id: self.training.precisions(o.server.gpu.id) for o in self.offers}
        return tuple(dict.fromkeys(p for precisions in tried.values() for p in precisions))

    def acquired_by(self, *acquisitions: Acquisition) -> Booleans:
        """Return which candidates are acquired in one of these ways."""
        ways = self.plan.search.ways
        codes = [ways.index(acquisition) for acquisition in acquisitions if acquisition in ways]
        return np.isin(self.columns.acquisition, codes)[self.offer]

    @cached_property
    def network_known(self) -> Booleans:
        """The mask of the candidates that are one machine or have a known network."""
        by_offer: Booleans = np.array([not o.network_assumed for o in self.offers], dtype=bool)
        return by_offer[self.offer]

    @cached_property
    def kept_machines(self) -> Floats:
        """The number of machines you have, for kept ones; infinite for all others."""
        counts = [o.server.owned if o.acquisition == "keep" else np.inf for o in self.offers]
        machines: Floats = np.array(counts, dtype=float)[self.offer]
        return machines

    @cached_property
    def site_limits(self) -> tuple[SiteLimit | None, ...]:
        """The site's limit on the number of machines, for each offer."""
        if not self.premises.limits:
            return (None,) * len(self.offers)
        return tuple(self.premises.find_limit(o.housing_key, o.acquisition) for o in self.offers)

    @cached_property
    def housed_machines(self) -> Floats:
        """The number of machines that the site can house, for each candidate."""
        counts = [np.inf if limit is None else limit.machines for limit in self.site_limits]
        machines: Floats = np.array(counts, dtype=float)[self.offer]
        return machines

    @cached_property
    def max_machines(self) -> Floats:
        return np.minimum(self.kept_machines, self.housed_machines)

    def price_rows(self, chosen: Integers, run_hours: Floats) -> PriceRows:
        """Return the prices of some candidates, for runs of the given hours."""
        nodes = self.throughputs.nodes[self.row[chosen]].astype(float)
        return PriceRows.from_columns(self.columns, self.offer[chosen], nodes, run_hours)

    def run_hours(self, samples_per_second: Floats) -> Floats:
        return self.samples_per_run / samples_per_second / 3600

    def price(self, chosen: Integers, samples_per_second: Floats) -> Costs:
        """Price some candidates at the given speeds."""
        return price_candidates(
            self.plan,
            self.runs,
            self.premises,
            columns=self.columns,
            offer=self.offer[chosen],
            nodes=self.throughputs.nodes[self.row[chosen]].astype(float),
            run_hours=self.run_hours(samples_per_second),
        )

    def at_price_end(self, end: PriceEnd) -> "Candidates":
        """Return the same candidates with bought machines at one end of their price ranges; costs don't change."""
        usd = self.columns.buy_usd_low if end == "low" else self.columns.buy_usd_high
        return replace(self, columns=replace(self.columns, buy_usd=usd))

    def reprice_for_runs(self, runs: PlannedRuns) -> "Candidates":
        """Return the same candidates, priced for other runs."""
        columns = OfferColumns.from_offers(
            self.offers, self.plan.search.ways, self.data, runs, self.grid.nodes
        )
        changed = replace(self, runs=runs, columns=columns)
        at = np.arange(len(self))
        speeds = self.throughputs.samples_per_second[self.row]
        return replace(changed, costs=changed.price(at, speeds))


def create_candidates(
    plan: Plan,
    training: Training,
    *,
    samples_per_run: float,
    tokens_per_sample: int | None,
    offers: Sequence[Offer],
    runs: PlannedRuns,
    premises: Premises,
    data: CloudData,
    missing_rates: Sequence[MissingRate] = (),
) -> Candidates:
    """Predict each shape once, and price each offer on it."""
    usable = [offer for offer in offers if training.precisions(offer.server.gpu.id)]
    positions: dict[object, int] = {}
    shapes: list[MachineShape] = []
    shape_of = np.empty(len(usable), dtype=np.int64)
    for number, candidate in enumerate(usable):
        key = candidate.shape_key
        if key not in positions:
            positions[key] = len(shapes)
            shapes.append(candidate.shape)
        shape_of[number] = positions[key]
    _check_count(training, shapes, shape_of)

    predicted = widen_intervals(
        training.predict(shapes), shapes, training.predict, (SLOW_NETWORK, FAST_NETWORK)
    )
    offer, row = _join_rows(shape_of, predicted, len(shapes))
    columns = OfferColumns.from_offers(usable, plan.search.ways, data, runs, training.grid.nodes)
    costs = price_candidates(
        plan,
        runs,
        premises,
        columns=columns,
        offer=offer,
        nodes=predicted.nodes[row].astype(float),
        run_hours=samples_per_run / predicted.samples_per_second[row] / 3600,
    )
    return Candidates(
        plan, runs, premises, data, samples_per_run, tokens_per_sample, training, tuple(usable),
        columns, predicted, tuple(missing_rates), offer, row, costs,
    )  # fmt: skip


def _check_count(training: Training, shapes: Sequence[MachineShape], shape_of: Integers) -> None:
    """Refuse a search that would not fit in memory; a candidate takes about 200 bytes."""
    per_shape = np.array([training.count_configurations(s) for s in shapes], dtype=np.int64)
    count = int(per_shape[shape_of].sum())
    if count > _MAX_CANDIDATES:
        grid = training.grid
        precisions = max(len(training.precisions(shape.gpu.id)) for shape in shapes)
        raise UserMistake(
            f"the search has {count:,} candidates, the maximum is {_MAX_CANDIDATES:,}: {len(shape_of):,} offers, "
            f"{len(grid.nodes):,} node counts, {len(grid.batches):,} batches, and {len(grid.remedies)} remedies"
            f"{f' in {precisions} precisions' if precisions > 1 else ''}; "
            "shorten 'search.nodes' or 'search.batch', or name 'search.gpus' or 'search.offers'"
        )


def _join_rows(
    shape_of: Integers, predicted: Throughputs, shapes: int
) -> tuple[Integers, Integers]:
    """Combine every offer with all rows of its shape, which are contiguous; return both indices."""
    counts = np.bincount(predicted.shape, minlength=shapes)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if shapes else np.zeros(0, dtype=int)
    rows_each = counts[shape_of]
    offer = np.repeat(np.arange(len(shape_of)), rows_each)
    within = np.arange(rows_each.sum()) - np.repeat(np.cumsum(rows_each) - rows_each, rows_each)
    return offer.astype(np.int64), (starts[shape_of][offer] + within).astype(np.int64)
