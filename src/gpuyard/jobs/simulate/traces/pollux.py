"""Read the traces of the Pollux paper (Qiao et al., OSDI 2021): 160 jobs each, of six applications.

Their step times (by placement and batch) and gradient noise (by epoch and batch) were measured on machines with four T4
GPUs. The simulation follows the paper's own simulator: rounds of 60 s, and 30 s lost at each start. Progress is counted in
steps of the smallest batch; a step with s times that batch counts (var + sqr) / (var / s + sqr) of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces.csv_rows import TraceRow, read_rows
from gpuyard.jobs.simulate.work import GpusByMachine, PhasedWork, SteadyWork, Work, pack_gpus
from gpuyard.policies.curve import Curve, Speeds
from gpuyard.policies.views import Pool

BatchChoice = Literal["user", "adaptive"]
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
POOL = Pool.uniform(16, 4)
RESTART_S = 30.0
_GPUS_PER_MACHINE = 4
_EPOCHS = {
    "bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50,
}  # fmt: skip
_MAX_LOCAL_BATCH = {"yolov3": 8}  # larger ones were measured, but the paper did not use them
_ONE_GPU = {"ncf"}  # gets slower with more GPUs, so policies may not choose more
_BATCHES_TRIED = 48  # from the smallest to the largest


@dataclass(frozen=True)
class StepTimes:
    """Step and synchronization seconds of one placement, by local batch."""

    local: Speeds
    step: Speeds
    sync: Speeds

    def interpolate(self, local: Speeds) -> tuple[Speeds, Speeds]:
        return np.interp(local, self.local, self.step), np.interp(local, self.local, self.sync)


@dataclass(frozen=True)
class BatchSplit:
    """Total batches on some GPUs: samples per pass, passes beyond the first, and the resulting total."""

    local: Speeds
    accumulations: Speeds
    total: Speeds


@dataclass(frozen=True, eq=False)
class Application:
    """One of the six applications: the time and the value of its steps."""

    name: str
    placements: dict[str, StepTimes]  # by GPUs per node as digits, in their smallest rotation
    by_count: dict[int, dict[int, StepTimes]]  # nodes → GPUs
    batches: Speeds  # with which it was trained
    progress: Speeds  # at the end of each epoch
    sqr: Speeds  # squared norm of the gradient: [batch, epoch]
    var: Speeds  # its variance: [batch, epoch]
    _speeds: dict[tuple[GpusByMachine, int], float] = field(default_factory=dict)
    _goodputs: dict[GpusByMachine, Speeds] = field(default_factory=dict)

    @cached_property
    def min_local_batch(self) -> float:
        return float(min(m.local[0] for m in self.placements.values()))

    @cached_property
    def max_local_batch(self) -> float:
        return _MAX_LOCAL_BATCH.get(self.name) or float(
            max(m.local[-1] for m in self.placements.values())
        )

    def max_gpus(self, batch: float) -> int:
        """Return the largest number of GPUs for a batch, within the measured local batches and 64 GPUs."""
        return min(64, int(batch // self.min_local_batch))

    def split(self, gpus: int, batches: Speeds) -> BatchSplit:
        """Divide each total batch among the GPUs; gradients are accumulated if it exceeds the largest pass."""
        local = np.ceil(batches / gpus - 1e-8)
        accumulations = np.ceil(local / self.max_local_batch - 1e-8) - 1
        if gpus == 1:
            accumulations = np.where(
                batches > self.batches[0], np.maximum(accumulations, 1), accumulations
            )
        local = np.ceil(local / (accumulations + 1) - 1e-8)
        passes = gpus * (accumulations + 1)
        local = np.minimum(local, np.floor(self.batches[-1] / passes))
        return BatchSplit(local, accumulations, local * passes)

    def step_seconds(self, shape: GpusByMachine, split: BatchSplit) -> Speeds:
        step, sync = self._interpolate(shape, split.local)
        return step + (step - sync) * split.accumulations

    def _interpolate(self, shape: GpusByMachine, local: Speeds) -> tuple[Speeds, Speeds]:
        measured = self.placements.get(_rotate_to_smallest("".join(map(str, shape))))
        if measured is not None:
            return measured.interpolate(local)
        nodes, gpus = min(len(shape), max(self.by_count)), sum(shape)
        below = max(n for n in self.by_count if n <= nodes)
        above = min(n for n in self.by_count if n >= nodes)
        share = (nodes - below) / (above - below) if above > below else 0.0
        low, high = (self._interpolate_gpus(n, gpus / nodes * n, local) for n in (below, above))
        step, sync = ((1 - share) * a + share * b for a, b in zip(low, high, strict=True))
        return step, sync

    def _interpolate_gpus(self, nodes: int, gpus: float, local: Speeds) -> tuple[Speeds, Speeds]:
        """Interpolate between the measured numbers of GPUs on that many nodes."""
        counts = self.by_count[nodes]
        gpus = min(max(gpus, min(counts)), max(counts))
        below = max(n for n in counts if n <= gpus)
        above = min(n for n in counts if n >= gpus)
        share = (gpus - below) / (above - below) if above > below else 0.0
        low, high = counts[below].interpolate(local), counts[above].interpolate(local)
        return (1 - share) * low[0] + share * high[0], (1 - share) * low[1] + share * high[1]

    def gains(self, batches: Speeds) -> Speeds:
        """Return [batch, epoch]: how many steps of the smallest batch a step with this batch counts."""
        low = np.clip(np.searchsorted(self.batches, batches) - 1, 0, len(self.batches) - 2)
        share = (batches - self.batches[low]) / np.diff(self.batches)[low]
        share = np.clip(share, 0.0, 1.0)[:, None]
        sqr, var = (
            (1 - share) * table[low] + share * table[low + 1] for table in (self.sqr, self.var)
        )
        scale = batches[:, None] / self.batches[0]
        gain: Speeds = (var + sqr) / (var / scale + sqr)
        return gain

    def samples_per_second(self, shape: GpusByMachine, batch: int) -> float:
        """Return the speed with the user's total batch."""
        key = (shape, batch)
        if key not in self._speeds:
            split = self.split(sum(shape), np.array([float(batch)]))
            seconds = self.step_seconds(shape, split)
            self._speeds[key] = float(split.total[0] / seconds[0])
        return self._speeds[key]

    def goodput(self, shape: GpusByMachine) -> Speeds:
        """Return progress per second by epoch, with the best batch for these GPUs in that epoch."""
        if shape not in self._goodputs:
            gpus = sum(shape)
            smallest = max(self.batches[0], gpus * self.min_local_batch)
            sizes: Speeds = np.unique(
                np.round(np.geomspace(smallest, self.batches[-1], _BATCHES_TRIED))
            )
            split = self.split(gpus, sizes)
            goodputs = self.gains(split.total) / self.step_seconds(shape, split)[:, None]
            self._goodputs[shape] = goodputs.max(axis=0)
        return self._goodputs[shape]


def read_pollux(path: Path, traces: Path, batch: BatchChoice = "user") -> Trace:
    """Read a workload's CSV; the applications' measurements are in `traces`."""
    applications: dict[str, Application] = {}
    works: dict[tuple[str, int], Work] = {}
    lines: dict[str, int] = {}
    jobs = []
    for row in read_rows(path, COLUMNS, what="a Pollux workload"):
        name = row.text("application")
        if name not in _EPOCHS:
            raise UserMistake(f"{path}:{row.line}: {UnknownName('application', name, _EPOCHS)}")
        if name not in applications:
            applications[name] = read_application(traces / name)
        application = applications[name]
        size = row.count(
            "batch_size", minimum=int(application.batches[0]), maximum=int(application.batches[-1])
        )
        if (name, size) not in works:
            works[name, size] = _create_work(application, size, batch)
        max_gpus = application.max_gpus(size if batch == "user" else application.batches[-1])
        jobs.append(
            TraceJob(
                row.unique_text("name", lines),
                row.number("time"),
                works[name, size],
                requested_gpus=row.count("num_replicas", maximum=max_gpus),
                max_gpus=1 if name in _ONE_GPU else max_gpus,
                user=name,
                elastic=True,
                restart_s=RESTART_S,
            )
        )
    return Trace.from_jobs(path, jobs, POOL)


def _create_work(application: Application, batch: int, choice: BatchChoice) -> Work:
    steps = np.diff(application.progress, prepend=0.0)
    if choice == "adaptive" and application.name not in _ONE_GPU:
        every = range(1, application.max_gpus(application.batches[-1]) + 1)
        table = np.stack(
            [application.goodput(pack_gpus(gpus, _GPUS_PER_MACHINE)) for gpus in every], axis=1
        )
        packed = np.concatenate((np.zeros((len(table), 1)), table), axis=1)
        return PhasedWork(application.progress, packed, application.goodput)
    gain = application.gains(np.array([float(batch)]))[0]
    samples = float((steps / gain).sum()) * batch
    every = range(1, application.max_gpus(batch) + 1)
    speeds = [
        application.samples_per_second(pack_gpus(gpus, _GPUS_PER_MACHINE), batch) for gpus in every
    ]
    packed = np.array([0.0, *speeds])
    return SteadyWork(
        samples, Curve(packed, lambda shape: application.samples_per_second(shape, batch))
    )


def read_application(directory: Path) -> Application:
    """Read an application's directory of measurements."""
    placements = read_placements(directory / "placements.csv")
    by_count = _group_by_count(placements, directory / "scalability.csv")
    files = sorted(directory.glob("validation-*.csv"), key=_parse_batch)
    if len(files) < 2:
        raise UserMistake(f"{directory}: expected at least two files validation-BATCH.csv")
    epochs = _EPOCHS.get(directory.name, 0)
    tables = [read_epochs(file, epochs) for file in files]
    return Application(
        directory.name,
        {_rotate_to_smallest(digits): measured for digits, measured in placements.items()},
        by_count,
        np.array([float(_parse_batch(file)) for file in files]),
        np.min([table[:, 0] for table in tables], axis=0),
        np.array([table[:, 1] for table in tables]),
        np.array([table[:, 2] for table in tables]),
    )


def _parse_batch(file: Path) -> int:
    text = file.stem.removeprefix("validation-")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UserMistake(f"{file}: the name must contain a batch size, like validation-128.csv")
    return int(text)


def read_epochs(file: Path, epochs: int) -> Speeds:
    """Read [epoch]: progress, squared norm, and variance of the gradient."""
    required = ("progress", "grad_sqr", "grad_var")
    rows = [
        [row.number(column, maximum=1e30) for column in required]
        for row in read_rows(file, required, what="a table of epochs")
    ]
    if len(rows) < epochs:
        raise UserMistake(f"{file}: {len(rows)} epochs, expected {epochs}")
    table = np.array(rows[:epochs])
    if (
        not (np.diff(table[:, 0], prepend=0.0) > 0).all()
        or not (table[:, 1:].sum(axis=1) > 0).all()
    ):
        raise UserMistake(
            f"{file}: progress must increase, and the gradient's values must be above 0"
        )
    return table


def read_placements(file: Path) -> dict[str, StepTimes]:
    times: dict[str, list[_Times]] = defaultdict(list)
    required = ("placement", "local_bsz", "step_time", "sync_time")
    for row in read_rows(file, required, what="a table of placements"):
        digits = row.text("placement")
        if not 1 <= len(digits) <= 16 or set(digits) - set("1234"):
            raise row.mistake(
                "placement", f"expected one digit from 1 to 4 per node, got {digits[:20]!r}"
            )
        times[digits].append(_parse_times(row))
    if "1" not in times:
        raise UserMistake(f"{file}: placement '1' not found")
    return {digits: _create_step_times(rows) for digits, rows in times.items()}


def _group_by_count(
    placements: dict[str, StepTimes], file: Path
) -> dict[int, dict[int, StepTimes]]:
    """Average placements with the same nodes and GPUs, and add the larger numbers from the file."""
    grouped: dict[tuple[int, int], list[StepTimes]] = defaultdict(list)
    for digits, measured in placements.items():
        grouped[len(digits), sum(map(int, digits))].append(measured)
    by_count: dict[int, dict[int, StepTimes]] = defaultdict(dict)
    for (nodes, gpus), group in grouped.items():
        local = group[0].local
        steps, syncs = zip(*(measured.interpolate(local) for measured in group), strict=True)
        by_count[nodes][gpus] = StepTimes(local, np.mean(steps, axis=0), np.mean(syncs, axis=0))
    times: dict[tuple[int, int], list[_Times]] = defaultdict(list)
    required = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    for row in read_rows(file, required, what="a table of scalability"):
        key = row.count("num_nodes", maximum=1000), row.count("num_replicas", maximum=10_000)
        times[key].append(_parse_times(row))
    for (nodes, gpus), rows in times.items():
        by_count[nodes][gpus] = _create_step_times(rows)
    return dict(by_count)


_Times = tuple[float, float, float]
"""Local batch, step seconds, and synchronization seconds."""


def _parse_times(row: TraceRow) -> _Times:
    step = row.number("step_time", minimum=1e-9, maximum=1e6)
    return (row.number("local_bsz", minimum=1), step, row.number("sync_time", maximum=step))


def _create_step_times(times: Iterable[_Times]) -> StepTimes:
    return StepTimes(*(np.array(column) for column in zip(*sorted(times), strict=True)))


def _rotate_to_smallest(digits: str) -> str:
    return min((digits[i:] + digits[:i] for i in range(len(digits))), default="")
