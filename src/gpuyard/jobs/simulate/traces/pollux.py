"""The traces of the Pollux paper (Qiao et al., OSDI 2021): 160 jobs each, of six applications whose step times,
by placement and batch, and gradient noise, by epoch and batch, were measured on machines with four T4.

How they are simulated follows the paper's own simulator: rounds of 60 s, 30 s lost at each start, progress in
steps of the smallest batch, each worth gain / step time, with gain = (var + sqr) / (var / s + sqr) for s times the
smallest batch.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.jobs.curve import Curve, Speeds
from gpuyard.jobs.policies.base import Pool
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces.rows import TraceRow, read_rows
from gpuyard.jobs.simulate.work import GpusByMachine, PhasedWork, SteadyWork, Work, packed_shape

BatchChoice = Literal["user", "adaptive"]
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
POOL = Pool.uniform(16, 4)
RESTART_S = 30.0
_GPUS_PER_MACHINE = 4
_EPOCHS = {
    "bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50,
}  # fmt: skip
_MOST_LOCAL = {"yolov3": 8}  # of what was measured, the paper used no larger ones
_ONE_GPU = {"ncf"}  # under policies that choose: it gets slower with more
_BATCHES = 48  # that are tried, from the smallest to the largest


@dataclass(frozen=True)
class Measured:
    """Step and synchronisation seconds of one placement by local batch."""

    local: Speeds
    step: Speeds
    sync: Speeds

    def at(self, local: Speeds) -> tuple[Speeds, Speeds]:
        return np.interp(local, self.local, self.step), np.interp(local, self.local, self.sync)


@dataclass(frozen=True)
class Split:
    """One total batch on some GPUs: samples a pass, passes beyond the first, and what that makes together."""

    local: Speeds
    further: Speeds
    total: Speeds


@dataclass(frozen=True, eq=False)
class Application:
    """One of the six: what a step takes on which GPUs, and what it is worth."""

    name: str
    placements: dict[str, Measured]  # by digits, the least of their rotations
    by_count: dict[int, dict[int, Measured]]  # nodes → GPUs
    batches: Speeds  # in which it was trained
    progress: Speeds  # at the end of each epoch
    sqr: Speeds  # [batch, epoch]
    var: Speeds
    _speeds: dict[tuple[GpusByMachine, int], float] = field(default_factory=dict)
    _goodputs: dict[GpusByMachine, Speeds] = field(default_factory=dict)

    @cached_property
    def least_local(self) -> float:
        return float(min(m.local[0] for m in self.placements.values()))

    @cached_property
    def most_local(self) -> float:
        return _MOST_LOCAL.get(self.name) or float(
            max(m.local[-1] for m in self.placements.values())
        )

    def most_gpus(self, batch: float) -> int:
        """No GPU works on fewer samples than were measured; 64 is as far as was measured."""
        return min(64, int(batch // self.least_local))

    def split(self, gpus: int, batches: Speeds) -> Split:
        """Each total batch over the GPUs; what exceeds the largest pass is accumulated over several."""
        local = np.ceil(batches / gpus - 1e-8)
        further = np.ceil(local / self.most_local - 1e-8) - 1
        if gpus == 1:
            further = np.where(batches > self.batches[0], np.maximum(further, 1), further)
        local = np.ceil(local / (further + 1) - 1e-8)
        passes = gpus * (further + 1)
        local = np.minimum(local, np.floor(self.batches[-1] / passes))
        return Split(local, further, local * passes)

    def step_seconds(self, shape: GpusByMachine, split: Split) -> Speeds:
        step, sync = self._measured(shape, split.local)
        return step + (step - sync) * split.further

    def _measured(self, shape: GpusByMachine, local: Speeds) -> tuple[Speeds, Speeds]:
        known = self.placements.get(_rotated("".join(map(str, shape))))
        if known is not None:
            return known.at(local)
        nodes, gpus = min(len(shape), max(self.by_count)), sum(shape)
        below = max(n for n in self.by_count if n <= nodes)
        above = min(n for n in self.by_count if n >= nodes)
        share = (nodes - below) / (above - below) if above > below else 0.0
        low, high = (self._of_nodes(n, gpus / nodes * n, local) for n in (below, above))
        step, sync = ((1 - share) * a + share * b for a, b in zip(low, high, strict=True))
        return step, sync

    def _of_nodes(self, nodes: int, gpus: float, local: Speeds) -> tuple[Speeds, Speeds]:
        """Between the measured numbers of GPUs on so many nodes."""
        counts = self.by_count[nodes]
        gpus = min(max(gpus, min(counts)), max(counts))
        below = max(n for n in counts if n <= gpus)
        above = min(n for n in counts if n >= gpus)
        share = (gpus - below) / (above - below) if above > below else 0.0
        low, high = counts[below].at(local), counts[above].at(local)
        return (1 - share) * low[0] + share * high[0], (1 - share) * low[1] + share * high[1]

    def gains(self, batches: Speeds) -> Speeds:
        """[batch, epoch]: how many steps of the smallest batch one with this batch is worth."""
        at = np.clip(np.searchsorted(self.batches, batches) - 1, 0, len(self.batches) - 2)
        share = (batches - self.batches[at]) / np.diff(self.batches)[at]
        share = np.clip(share, 0.0, 1.0)[:, None]
        sqr, var = ((1 - share) * of[at] + share * of[at + 1] for of in (self.sqr, self.var))
        scale = batches[:, None] / self.batches[0]
        gain: Speeds = (var + sqr) / (var / scale + sqr)
        return gain

    def samples_per_second(self, shape: GpusByMachine, batch: int) -> float:
        """With the user's total batch."""
        key = (shape, batch)
        if key not in self._speeds:
            split = self.split(sum(shape), np.array([float(batch)]))
            seconds = self.step_seconds(shape, split)
            self._speeds[key] = float(split.total[0] / seconds[0])
        return self._speeds[key]

    def goodput(self, shape: GpusByMachine) -> Speeds:
        """By epoch: progress a second with the best batch for these GPUs in that epoch."""
        if shape not in self._goodputs:
            gpus = sum(shape)
            least = max(self.batches[0], gpus * self.least_local)
            sizes: Speeds = np.unique(np.round(np.geomspace(least, self.batches[-1], _BATCHES)))
            split = self.split(gpus, sizes)
            worth = self.gains(split.total) / self.step_seconds(shape, split)[:, None]
            self._goodputs[shape] = worth.max(axis=0)
        return self._goodputs[shape]


def read_pollux(path: Path, traces: Path, batch: BatchChoice = "user") -> Trace:
    """A workload's CSV, with the applications' measurements in `traces`."""
    applications: dict[str, Application] = {}
    works: dict[tuple[str, int], Work] = {}
    lines: dict[str, int] = {}
    jobs = []
    for row in read_rows(path, COLUMNS, what="a workload of Pollux"):
        name = row.text("application")
        if name not in _EPOCHS:
            raise UserMistake(f"{path}:{row.line}: {UnknownName('application', name, _EPOCHS)}")
        if name not in applications:
            applications[name] = read_application(traces / name)
        application = applications[name]
        size = row.count(
            "batch_size", least=int(application.batches[0]), most=int(application.batches[-1])
        )
        if (name, size) not in works:
            works[name, size] = _work(application, size, batch)
        most = application.most_gpus(size if batch == "user" else application.batches[-1])
        jobs.append(
            TraceJob(
                row.new("name", lines),
                row.number("time"),
                works[name, size],
                asked_gpus=row.count("num_replicas", most=most),
                most_gpus=1 if name in _ONE_GPU else most,
                user=name,
                elastic=True,
                restart_s=RESTART_S,
            )
        )
    return Trace.of(path, jobs, POOL)


def _work(application: Application, batch: int, chosen: BatchChoice) -> Work:
    steps = np.diff(application.progress, prepend=0.0)
    if chosen == "adaptive" and application.name not in _ONE_GPU:
        every = range(1, application.most_gpus(application.batches[-1]) + 1)
        table = np.stack(
            [application.goodput(packed_shape(gpus, _GPUS_PER_MACHINE)) for gpus in every], axis=1
        )
        packed = np.concatenate((np.zeros((len(table), 1)), table), axis=1)
        return PhasedWork(application.progress, packed, application.goodput)
    gain = application.gains(np.array([float(batch)]))[0]
    samples = float((steps / gain).sum()) * batch
    every = range(1, application.most_gpus(batch) + 1)
    speeds = [
        application.samples_per_second(packed_shape(gpus, _GPUS_PER_MACHINE), batch)
        for gpus in every
    ]
    packed = np.array([0.0, *speeds])
    return SteadyWork(
        samples, Curve(packed, lambda shape: application.samples_per_second(shape, batch))
    )


def read_application(directory: Path) -> Application:
    """From its directory of measurements."""
    placements = read_placements(directory / "placements.csv")
    by_count = _by_count(placements, directory / "scalability.csv")
    files = sorted(directory.glob("validation-*.csv"), key=_batch_of)
    if len(files) < 2:
        raise UserMistake(f"{directory}: expected at least two validation-BATCH.csv in it")
    epochs = _EPOCHS.get(directory.name, 0)
    tables = [read_epochs(file, epochs) for file in files]
    return Application(
        directory.name,
        {_rotated(digits): measured for digits, measured in placements.items()},
        by_count,
        np.array([float(_batch_of(file)) for file in files]),
        np.min([table[:, 0] for table in tables], axis=0),
        np.array([table[:, 1] for table in tables]),
        np.array([table[:, 2] for table in tables]),
    )


def _batch_of(file: Path) -> int:
    text = file.stem.removeprefix("validation-")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UserMistake(f"{file}: expected a batch size in its name, like validation-128.csv")
    return int(text)


def read_epochs(file: Path, epochs: int) -> Speeds:
    """[epoch]: progress, squared norm and variance of the gradient."""
    needed = ("progress", "grad_sqr", "grad_var")
    rows = [
        [row.number(column, most=1e30) for column in needed]
        for row in read_rows(file, needed, what="a table of epochs")
    ]
    if len(rows) < epochs:
        raise UserMistake(f"{file}: {len(rows)} epochs, expected {epochs}")
    table = np.array(rows[:epochs])
    if (
        not (np.diff(table[:, 0], prepend=0.0) > 0).all()
        or not (table[:, 1:].sum(axis=1) > 0).all()
    ):
        raise UserMistake(f"{file}: progress must grow, and the gradient's figures be above 0")
    return table


def read_placements(file: Path) -> dict[str, Measured]:
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    needed = ("placement", "local_bsz", "step_time", "sync_time")
    for row in read_rows(file, needed, what="a table of placements"):
        digits = row.text("placement")
        if not 1 <= len(digits) <= 16 or set(digits) - set("1234"):
            raise row.wrong(
                "placement", f"expected one digit from 1 to 4 per node, got {digits[:20]!r}"
            )
        found[digits].append(_times(row))
    if "1" not in found:
        raise UserMistake(f"{file}: there is no placement '1' in it")
    return {digits: _measured(times) for digits, times in found.items()}


def _by_count(placements: dict[str, Measured], file: Path) -> dict[int, dict[int, Measured]]:
    """Of placements alike in nodes and GPUs the mean, and those of larger numbers."""
    alike: dict[tuple[int, int], list[Measured]] = defaultdict(list)
    for digits, measured in placements.items():
        alike[len(digits), sum(map(int, digits))].append(measured)
    found: dict[int, dict[int, Measured]] = defaultdict(dict)
    for (nodes, gpus), several in alike.items():
        found[nodes][gpus] = Measured(
            several[0].local,
            np.mean([m.at(several[0].local)[0] for m in several], axis=0),
            np.mean([m.at(several[0].local)[1] for m in several], axis=0),
        )
    times: dict[tuple[int, int], list[tuple[float, float, float]]] = defaultdict(list)
    needed = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    for row in read_rows(file, needed, what="a table of scalability"):
        key = row.count("num_nodes", most=1000), row.count("num_replicas", most=10_000)
        times[key].append(_times(row))
    for (nodes, gpus), rows in times.items():
        found[nodes][gpus] = _measured(rows)
    return dict(found)


def _times(row: TraceRow) -> tuple[float, float, float]:
    step = row.number("step_time", least=1e-9, most=1e6)
    return (row.number("local_bsz", least=1), step, row.number("sync_time", most=step))


def _measured(times: Iterable[tuple[float, float, float]]) -> Measured:
    return Measured(*(np.array(column) for column in zip(*sorted(times), strict=True)))


def _rotated(digits: str) -> str:
    return min((digits[i:] + digits[:i] for i in range(len(digits))), default="")
