"""The table of candidates: every offer with every configuration of its shape, as predicted or, where somebody has
measured several of its GPUs, as these figures have it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.planner.costs import Costs, Premises, PriceRows, cost_of
from gpuyard.planner.offers import CloudData, Offer, OfferColumns, PlannedRuns
from gpuyard.planner.result import NoRate
from gpuyard.planner.servers import FAST_NETWORK, SLOW_NETWORK
from gpuyard.planner.throughput import (
    EXCHANGES,
    Grid,
    Lines,
    MachineShape,
    Throughputs,
    configurations,
    predict_shapes,
    unrated,
    usable_lines,
    widened,
)
from gpuyard.predict import STRATEGIES, Calibration, Placement, PlatformScenario, platform_of
from gpuyard.predict import predict as predict_placements
from gpuyard.predict.compute import at_precision
from gpuyard.predict.interval import Reach
from gpuyard.predict.stacks.measured import measured_points, rates, updated
from gpuyard.predict.stacks.next_run import NextRun, next_run
from gpuyard.predict.stacks.posterior import Posterior
from gpuyard.predict.table import Floats, Integers
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload
from gpuyard.specs.plan import Acquisition, Plan, RemedyName

Truths = npt.NDArray[np.bool_]
_MOST = 2_000_000
_BATCH_FACTORS = (0.5, 1, 2, 4, 8)


@dataclass(frozen=True)
class Trained:
    """All that a prediction of a shape is made from but the shape."""

    workload: Workload
    profile: ModelProfile
    lines: Lines
    grid: Grid
    calibration: Calibration | None = None

    def on(self, shape: MachineShape, precision: Precision, remedy: RemedyName) -> PlatformScenario:
        """As a plan predicts it: nobody knows its storage and its cores. A figure of several machines says nothing
        about a network unless it names the one that it was measured on."""
        machine = MachineSpec(gpu=shape.gpu.id, gpus=shape.gpus, topology=shape.topology)
        nodes = 1 if shape.network is None else max(2, *self.grid.nodes)
        cluster = Cluster(name=shape.gpu.id, nodes=nodes, machine=machine, network=shape.network)
        trained = at_precision(self.workload, self.profile, precision)
        figures = tuple(known for known in trained.measured if known.nodes == 1 or known.network)
        return PlatformScenario(
            workload=trained.model_copy(update={"dataset": None, "measured": figures}),
            profile=self.profile,
            platform=platform_of(cluster),
            line=self.lines[shape.gpu.id][precision],
            strategy=STRATEGIES[self.grid.strategy],
            exchange=EXCHANGES[remedy],
            cluster=cluster,
            calibration=self.calibration,
        )

    def predict(self, shapes: Sequence[MachineShape]) -> Throughputs:
        """All shapes at once, then again those of which figures of several GPUs are known, by these."""
        predicted = predict_shapes(self.workload, self.profile, shapes, self.lines, self.grid)
        columns = {
            name: getattr(predicted, name).copy()
            for name in ("samples_per_second", "low", "high", "scaling_efficiency")
        }
        for shape, precision, remedy, rows in self._alike(predicted, shapes):
            found = self._by_figures(predicted, shape, self.on(shape, precision, remedy), rows)
            for name, values in zip(columns, found, strict=False):  # none where nothing is known
                columns[name][rows] = values
        rate = columns["samples_per_second"]
        return replace(predicted, **columns, on_slow_network=rate, on_fast_network=rate)

    def _alike(
        self, predicted: Throughputs, shapes: Sequence[MachineShape]
    ) -> Iterator[tuple[MachineShape, Precision, RemedyName, Integers]]:
        """Rows of one shape, precision and remedy, where anybody has measured several of its GPUs."""
        starts = np.searchsorted(predicted.shape, np.arange(len(shapes) + 1))
        for number, shape in enumerate(shapes):
            if shape.gpu.id not in self._measured:
                continue
            rows = np.arange(starts[number], starts[number + 1])
            for rank, precision in enumerate(self.lines[shape.gpu.id]):
                for code, remedy in enumerate(self.grid.remedies):
                    same = (predicted.precision[rows] == rank) & (predicted.remedy[rows] == code)
                    if same.any():
                        yield shape, precision, remedy, rows[same]

    @cached_property
    def _measured(self) -> set[str]:
        hardware = self.calibration.hardware if self.calibration else ()
        given = {known.gpu for known in self.workload.measured if known.gpus > 1}
        return given | {entry.processor for entry in hardware if entry.points}

    @staticmethod
    def _by_figures(
        predicted: Throughputs, shape: MachineShape, scenario: PlatformScenario, rows: Integers
    ) -> tuple[Floats, ...]:
        """Rates, both ends and efficiencies; nothing where no figure is about such machines."""
        if not measured_points(scenario):
            return ()
        spots = [
            (Placement(int(nodes) * shape.gpus, int(nodes), shape.gpus), int(batch))
            for nodes, batch in zip(
                predicted.nodes[rows], predicted.batch_per_gpu[rows], strict=True
            )
        ]
        rate, gpus = predicted.samples_per_second[rows], predicted.gpus[rows]
        reach = Reach(np.log(rate / predicted.low[rows]), np.log(predicted.high[rows] / rate))
        seconds = gpus * predicted.batch_per_gpu[rows] / rate
        known = updated(scenario, spots, Posterior(np.log(seconds), reach))
        if known is None:
            return ()
        found, alone = known
        rate = rates(found, spots)
        return rate, *found.reach.ends(rate), rate / (gpus * alone)


@dataclass(frozen=True)
class Candidates:
    """One entry a candidate: which offer, which prediction, and what it comes to."""

    plan: Plan
    runs: PlannedRuns
    premises: Premises
    data: CloudData
    grid: Grid
    samples_per_run: float
    trained: Trained
    offers: tuple[Offer, ...]
    columns: OfferColumns
    lines: Lines
    throughputs: Throughputs
    no_rate: tuple[NoRate, ...]
    precision_given: bool  # by the plan or the workload
    offer: Integers
    row: Integers  # of the throughputs
    costs: Costs

    def __len__(self) -> int:
        return len(self.offer)

    def precision(self, number: int) -> Precision:
        """What one of them trains in."""
        there = self.lines[self.offers[self.offer[number]].server.gpu.id]
        return tuple(there)[int(self.throughputs.precision[self.row[number]])]

    def next_run(self, number: int) -> NextRun | None:
        """The single run, smaller than one of them, that would narrow its prediction most."""
        predicted, row, offer = self.throughputs, self.row[number], self.offers[self.offer[number]]
        remedy = self.grid.remedies[predicted.remedy[row]]
        scenario = self.trained.on(offer.shape, self.precision(number), remedy)
        placements = scenario.platform.placements([int(predicted.gpus[row])])
        made = predict_placements(scenario, placements, [int(predicted.batch_per_gpu[row])])
        return next_run(scenario, made.predictions[0])

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """All that are tried on some GPU."""
        return tuple(dict.fromkeys(p for there in self.lines.values() for p in there))

    def acquired_by(self, *acquisitions: Acquisition) -> Truths:
        """Which of them are acquired in one of these ways."""
        asked = self.plan.search.ways
        codes = [asked.index(one) for one in acquisitions if one in asked]
        return np.isin(self.columns.acquisition, codes)[self.offer]

    @property
    def network_known(self) -> Truths:
        """Which of them are one machine, or joined as somebody says."""
        found: Truths = np.array([not o.network_assumed for o in self.offers], dtype=bool)
        return found[self.offer]

    @property
    def kept_machines(self) -> Floats:
        """How many of those that are kept there are; of others there are enough."""
        most = [o.server.owned if o.acquisition == "keep" else np.inf for o in self.offers]
        found: Floats = np.array(most, dtype=float)[self.offer]
        return found

    @property
    def housed_machines(self) -> Floats:
        """How many of the same machines the site can house."""
        limits = [self.premises.limit(o.housed, o.acquisition) for o in self.offers]
        most = [np.inf if limit is None else limit.machines for limit in limits]
        found: Floats = np.array(most, dtype=float)[self.offer]
        return found

    @property
    def most_machines(self) -> Floats:
        return np.minimum(self.kept_machines, self.housed_machines)

    def rows(self, chosen: Integers, run_hours: Floats) -> PriceRows:
        """What the price of some of them is made of, if a run took so long."""
        nodes = self.throughputs.nodes[self.row[chosen]].astype(float)
        return PriceRows.of(self.columns, self.offer[chosen], nodes, run_hours)

    def run_hours(self, samples_per_second: Floats) -> Floats:
        return self.samples_per_run / samples_per_second / 3600

    def priced(self, chosen: Integers, samples_per_second: Floats) -> Costs:
        """What some of them cost if they were so fast."""
        return cost_of(
            self.plan,
            self.runs,
            self.premises,
            columns=self.columns,
            offer=self.offer[chosen],
            nodes=self.throughputs.nodes[self.row[chosen]].astype(float),
            run_hours=self.run_hours(samples_per_second),
        )

    def for_runs(self, runs: PlannedRuns) -> "Candidates":
        """The same, priced for other runs."""
        columns = OfferColumns.of(
            self.offers, self.plan.search.ways, self.data, runs, self.grid.nodes
        )
        changed = replace(self, runs=runs, columns=columns)
        at = np.arange(len(self))
        speeds = self.throughputs.samples_per_second[self.row]
        return replace(changed, costs=changed.priced(at, speeds))


def candidates_of(
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
    lines = usable_lines(workload, profile, every_gpu, calibration, precisions)
    no_rate = tuple(
        NoRate(gpu, precision, tuple(dict.fromkeys(o.server.id for o in offers if o.server.gpu.id == gpu)))
        for gpu, precision in unrated(lines, workload, profile, every_gpu, precisions)
    )  # fmt: skip
    usable = [offer for offer in offers if offer.server.gpu.id in lines]
    grid = Grid(
        tuple(sorted(set(plan.search.nodes))),
        plan.search.batch or _batches(workload.batch_per_gpu),
        tuple(dict.fromkeys(plan.search.remedies)),
    )
    positions: dict[object, int] = {}
    shapes: list[MachineShape] = []
    shape_of = np.empty(len(usable), dtype=np.int64)
    for number, one in enumerate(usable):
        key = one.shape_key
        if key not in positions:
            positions[key] = len(shapes)
            shapes.append(one.shape)
        shape_of[number] = positions[key]
    _check_count(grid, lines, shapes, shape_of)

    trained = Trained(workload, profile, lines, grid, calibration)
    predicted = widened(
        trained.predict(shapes), shapes, trained.predict, (SLOW_NETWORK, FAST_NETWORK)
    )
    offer, row = _join(shape_of, predicted, len(shapes))
    columns = OfferColumns.of(usable, plan.search.ways, data, runs, grid.nodes)
    costs = cost_of(
        plan,
        runs,
        premises,
        columns=columns,
        offer=offer,
        nodes=predicted.nodes[row].astype(float),
        run_hours=samples_per_run / predicted.samples_per_second[row] / 3600,
    )
    return Candidates(
        plan, runs, premises, data, grid, samples_per_run, trained, tuple(usable),
        columns, lines, predicted, no_rate,
        bool(precisions or workload.precision), offer, row, costs,
    )  # fmt: skip


def _check_count(
    grid: Grid, lines: Lines, shapes: Sequence[MachineShape], shape_of: Integers
) -> None:
    """Each takes some 200 bytes: say now that a search is too large, not when the memory is full."""
    each = np.array([configurations(shape, lines, grid) for shape in shapes], dtype=np.int64)
    count = int(each[shape_of].sum())
    if count > _MOST:
        tried = max(map(len, lines.values()))
        raise UserMistake(
            f"the search has {count:,} candidates, {_MOST:,} is the most: {len(shape_of):,} offers, "
            f"{len(grid.nodes):,} numbers of nodes, {len(grid.batches):,} batches and {len(grid.remedies)} remedies"
            f"{f' in {tried} precisions' if tried > 1 else ''}; "
            "shorten 'search.nodes' or 'search.batch', or name 'search.gpus' or 'search.offers'"
        )


def _batches(usual: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(max(1, round(usual * factor)) for factor in _BATCH_FACTORS))


def _join(shape_of: Integers, predicted: Throughputs, shapes: int) -> tuple[Integers, Integers]:
    """Every offer with all rows of its shape; rows of one shape stand together."""
    counts = np.bincount(predicted.shape, minlength=shapes)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if shapes else np.zeros(0, dtype=int)
    each = counts[shape_of]
    offer = np.repeat(np.arange(len(shape_of)), each)
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    return offer.astype(np.int64), (starts[shape_of][offer] + within).astype(np.int64)
