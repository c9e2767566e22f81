"""The table of candidates: every offer with every configuration of its shape.

Throughput is predicted, and corrected by measurements if there are any for several GPUs of that kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.planner.costs import Costs, Premises, PriceRows, SiteLimit, price_candidates
from gpuyard.planner.offers import CloudData, Offer, OfferColumns, PlannedRuns
from gpuyard.planner.result import MissingRate
from gpuyard.planner.servers import FAST_NETWORK, SLOW_NETWORK
from gpuyard.planner.throughput import (
    EXCHANGES,
    ComputeLineTable,
    Grid,
    MachineShape,
    Throughputs,
    count_configurations,
    find_compute_lines,
    find_missing_rates,
    predict_shapes,
    widen_intervals,
)
from gpuyard.predictor import STRATEGIES, Calibration, Placement, PlatformScenario, create_platform
from gpuyard.predictor import predict as predict_placements
from gpuyard.predictor.compute import change_workload_precision
from gpuyard.predictor.explain.next_run import NextRun, find_next_run
from gpuyard.predictor.interval import PredictionInterval
from gpuyard.predictor.software_stacks.evidence import (
    find_measured_points,
    posterior_rates,
    update_prediction,
)
from gpuyard.predictor.software_stacks.posterior import Posterior
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload
from gpuyard.specs.plan import Acquisition, Plan, RemedyName

Booleans = npt.NDArray[np.bool_]
PriceEnd = Literal["low", "high"]
_MAX_CANDIDATES = 2_000_000
_BATCH_FACTORS = (0.5, 1, 2, 4, 8)


@dataclass(frozen=True)
class TrainingSetup:
    """Everything except the shape that a prediction needs."""

    workload: Workload
    profile: ModelProfile
    lines: ComputeLineTable
    grid: Grid
    calibration: Calibration | None = None

    def create_scenario(
        self, shape: MachineShape, precision: Precision, remedy: RemedyName
    ) -> PlatformScenario:
        """Create the scenario of one shape, without storage and CPU cores, which a plan does not know.

        Figures of several machines count only if they name the network they were measured on.
        """
        machine = MachineSpec(gpu=shape.gpu.id, gpus=shape.gpus, topology=shape.topology)
        nodes = 1 if shape.network is None else max(2, *self.grid.nodes)
        cluster = Cluster(name=shape.gpu.id, nodes=nodes, machine=machine, network=shape.network)
        workload = change_workload_precision(self.workload, self.profile, precision)
        figures = tuple(f for f in workload.measured if f.nodes == 1 or f.network)
        return PlatformScenario(
            workload=workload.model_copy(update={"dataset": None, "measured": figures}),
            profile=self.profile,
            platform=create_platform(cluster),
            line=self.lines[shape.gpu.id][precision],
            strategy=STRATEGIES[self.grid.strategy],
            exchange=EXCHANGES[remedy],
            cluster=cluster,
            calibration=self.calibration,
        )

    def predict(self, shapes: Sequence[MachineShape]) -> Throughputs:
        """Predict all shapes at once, then update those that have figures for several GPUs."""
        predicted = predict_shapes(self.workload, self.profile, shapes, self.lines, self.grid)
        columns = {
            name: getattr(predicted, name).copy()
            for name in ("samples_per_second", "low", "high", "scaling_efficiency")
        }
        for shape, precision, remedy, rows in self._group_rows(predicted, shapes):
            scenario = self.create_scenario(shape, precision, remedy)
            updated = self._apply_figures(predicted, shape, scenario, rows)
            for name, values in zip(columns, updated, strict=False):  # empty without figures
                columns[name][rows] = values
        rate = columns["samples_per_second"]
        return replace(predicted, **columns, on_slow_network=rate, on_fast_network=rate)

    def _group_rows(
        self, predicted: Throughputs, shapes: Sequence[MachineShape]
    ) -> Iterator[tuple[MachineShape, Precision, RemedyName, Integers]]:
        """Group the rows of GPUs with figures for several of them by shape, precision, and remedy."""
        starts = np.searchsorted(predicted.shape, np.arange(len(shapes) + 1))
        for number, shape in enumerate(shapes):
            if shape.gpu.id not in self._measured_gpus:
                continue
            rows = np.arange(starts[number], starts[number + 1])
            for rank, precision in enumerate(self.lines[shape.gpu.id]):
                for code, remedy in enumerate(self.grid.remedies):
                    same = (predicted.precision[rows] == rank) & (predicted.remedy[rows] == code)
                    if same.any():
                        yield shape, precision, remedy, rows[same]

    @cached_property
    def _measured_gpus(self) -> set[str]:
        hardware = self.calibration.hardware if self.calibration else ()
        in_workload = {figure.gpu for figure in self.workload.measured if figure.gpus > 1}
        return in_workload | {entry.processor for entry in hardware if entry.points}

    @staticmethod
    def _apply_figures(
        predicted: Throughputs, shape: MachineShape, scenario: PlatformScenario, rows: Integers
    ) -> tuple[Floats, ...]:
        """Return rates, both interval ends, and efficiencies; nothing if no figure applies to such machines."""
        if not find_measured_points(scenario):
            return ()
        spots = [
            (Placement(int(nodes) * shape.gpus, int(nodes), shape.gpus), int(batch))
            for nodes, batch in zip(
                predicted.nodes[rows], predicted.batch_per_gpu[rows], strict=True
            )
        ]
        rate, gpus = predicted.samples_per_second[rows], predicted.gpus[rows]
        interval = PredictionInterval(
            np.log(rate / predicted.low[rows]), np.log(predicted.high[rows] / rate)
        )
        seconds = gpus * predicted.batch_per_gpu[rows] / rate
        updated = update_prediction(scenario, spots, Posterior(np.log(seconds), interval))
        if updated is None:
            return ()
        posterior, single_gpu_rate = updated
        rate = posterior_rates(posterior, spots)
        return rate, *posterior.interval.bounds(rate), rate / (gpus * single_gpu_rate)


@dataclass(frozen=True)
class Candidates:
    """All candidates: arrays with one entry per candidate for its offer, its prediction, and its costs.

    The limits that depend on an offer are computed once per offer and cached.
    """

    plan: Plan
    runs: PlannedRuns
    premises: Premises
    data: CloudData
    grid: Grid
    samples_per_run: float
    training: TrainingSetup
    offers: tuple[Offer, ...]
    columns: OfferColumns
    lines: ComputeLineTable
    throughputs: Throughputs
    missing_rates: tuple[MissingRate, ...]
    precision_given: bool  # by the plan or the workload
    offer: Integers  # index into `offers`, ascending
    row: Integers  # index into `throughputs`
    costs: Costs

    def __len__(self) -> int:
        return len(self.offer)

    def precision(self, number: int) -> Precision:
        """Return the precision in which a candidate trains."""
        lines = self.lines[self.offers[self.offer[number]].server.gpu.id]
        return tuple(lines)[int(self.throughputs.precision[self.row[number]])]

    def suggest_next_run(self, number: int) -> NextRun | None:
        """Suggest the smaller run that would narrow a candidate's prediction most."""
        predicted, row, offer = self.throughputs, self.row[number], self.offers[self.offer[number]]
        remedy = self.grid.remedies[predicted.remedy[row]]
        scenario = self.training.create_scenario(offer.shape, self.precision(number), remedy)
        placements = scenario.platform.placements([int(predicted.gpus[row])])
        result = predict_placements(scenario, placements, [int(predicted.batch_per_gpu[row])])
        return find_next_run(scenario, result.predictions[0])

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """All precisions that are tried on some GPU."""
        return tuple(dict.fromkeys(p for lines in self.lines.values() for p in lines))

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
    workload: Workload,
    profile: ModelProfile,
    *,
    samples_per_run: float,
    offers: Sequence[Offer],
    runs: PlannedRuns,
    premises: Premises,
    data: CloudData,
    calibration: Calibration | None = None,
) -> Candidates:
    """Predict each shape once, and price each offer on it."""
    every_gpu = list({o.server.gpu.id: o.server.gpu for o in offers}.values())
    precisions = plan.search.precision or ()
    lines = find_compute_lines(workload, profile, every_gpu, calibration, precisions)
    missing_rates = tuple(
        MissingRate(gpu, precision, tuple(dict.fromkeys(o.server.id for o in offers if o.server.gpu.id == gpu)))
        for gpu, precision in find_missing_rates(lines, workload, profile, every_gpu, precisions)
    )  # fmt: skip
    usable = [offer for offer in offers if offer.server.gpu.id in lines]
    grid = Grid(
        tuple(sorted(set(plan.search.nodes))),
        plan.search.batch or _choose_batches(workload.batch_per_gpu),
        tuple(dict.fromkeys(plan.search.remedies)),
    )
    positions: dict[object, int] = {}
    shapes: list[MachineShape] = []
    shape_of = np.empty(len(usable), dtype=np.int64)
    for number, candidate in enumerate(usable):
        key = candidate.shape_key
        if key not in positions:
            positions[key] = len(shapes)
            shapes.append(candidate.shape)
        shape_of[number] = positions[key]
    _check_count(grid, lines, shapes, shape_of)

    training = TrainingSetup(workload, profile, lines, grid, calibration)
    predicted = widen_intervals(
        training.predict(shapes), shapes, training.predict, (SLOW_NETWORK, FAST_NETWORK)
    )
    offer, row = _join_rows(shape_of, predicted, len(shapes))
    columns = OfferColumns.from_offers(usable, plan.search.ways, data, runs, grid.nodes)
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
        plan, runs, premises, data, grid, samples_per_run, training, tuple(usable),
        columns, lines, predicted, missing_rates,
        bool(precisions or workload.precision), offer, row, costs,
    )  # fmt: skip


def _check_count(
    grid: Grid, lines: ComputeLineTable, shapes: Sequence[MachineShape], shape_of: Integers
) -> None:
    """Refuse a search that would not fit in memory; a candidate takes about 200 bytes."""
    per_shape = np.array(
        [count_configurations(shape, lines, grid) for shape in shapes], dtype=np.int64
    )
    count = int(per_shape[shape_of].sum())
    if count > _MAX_CANDIDATES:
        precisions = max(map(len, lines.values()))
        raise UserMistake(
            f"the search has {count:,} candidates, the maximum is {_MAX_CANDIDATES:,}: {len(shape_of):,} offers, "
            f"{len(grid.nodes):,} node counts, {len(grid.batches):,} batches, and {len(grid.remedies)} remedies"
            f"{f' in {precisions} precisions' if precisions > 1 else ''}; "
            "shorten 'search.nodes' or 'search.batch', or name 'search.gpus' or 'search.offers'"
        )


def _choose_batches(usual: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(max(1, round(usual * factor)) for factor in _BATCH_FACTORS))


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
