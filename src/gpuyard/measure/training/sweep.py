"""A planned training sweep: its points, where they run, and the events of its run."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpuyard.choices import Launcher
from gpuyard.measure.progress import ProgressUpdate
from gpuyard.measure.record import Testbed
from gpuyard.measure.training.records import Measurement, SyntheticGpu, describe_place
from gpuyard.run.places import Place
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions, Precision, Workload
from gpuyard.specs.exchange import RecordedStrategy
from gpuyard.units import format_bit_rate, format_count


@dataclass(frozen=True)
class SweepPoint:
    """One measurement to take; the same run on the same machine has the same key."""

    workers: int
    batch_per_worker: int
    key: str


@dataclass(frozen=True)
class Sweep:
    """A planned sweep. Every worker has the same number of cores, so that speeds are comparable."""

    workload: Workload
    strategy: RecordedStrategy
    device: RankDevice
    seconds_per_point: float
    cores_by_worker: tuple[tuple[int, ...], ...]
    seed: int
    testbed: Testbed
    points: tuple[SweepPoint, ...]
    remedy: ExchangeOptions
    gpu: str | None
    synthetic: SyntheticGpu | None
    """None if no GPU is emulated, or if the model is the user's own, whose code a plan does not run."""
    place: Place
    repeat: int
    launcher: Launcher

    def describe(self, stored: Collection[str] | None = None) -> dict[str, Any]:
        """Return the JSON value that `--dry-run` prints; with the stored keys, it marks the stored points."""
        return {
            "workload": self.workload.name,
            "model": self.workload.model_name,
            "strategy": self.strategy,
            "launcher": self.launcher,
            "remedy": self.remedy.model_dump(),
            "gpu": self.gpu,
            "device": self.device,
            "seconds_per_point": self.seconds_per_point,
            "cores_by_worker": [list(cores) for cores in self.cores_by_worker],
            "seed": self.seed,
            "host": self.testbed.host,
            "place": self.place.record(len(self.cores_by_worker)).model_dump(),
            "ranks": self.place.describe_ranks(len(self.cores_by_worker)),
            "repeat": self.repeat,
            "points": [
                {
                    "workers": p.workers,
                    "batch_per_worker": p.batch_per_worker,
                    "key": p.key,
                    **({} if stored is None else {"stored": p.key in stored}),
                }
                for p in self.points
            ],
        }

    def job_fields(self) -> dict[str, Any]:
        """Return the job fields that every rank receives, in a sweep or in a relief bench."""
        return {
            "workload": self.workload,
            "strategy": self.strategy,
            "device": self.device,
            "seconds_per_point": self.seconds_per_point,
            "seed": self.seed,
            "dilation": self.place.dilation,
        }

    def replace_precision(self, precision: Precision | None) -> "Sweep":
        return replace(self, workload=self.workload.model_copy(update={"precision": precision}))

    @property
    def title(self) -> str:
        device = f"synthetic {self.gpu}" if self.gpu else self.device
        remedy = "" if self.remedy.is_default else f" with {self.remedy.label}"
        place = self.place.record(len(self.cores_by_worker))
        nodes = "" if place.kind == "here" else f", {describe_place(place)}"
        precision = f"{self.workload.precision}, " if self.workload.precision else ""
        return f"{self.workload.name}: {precision}{self.strategy}{remedy} on {device}{nodes}"

    @property
    def label(self) -> str:
        """The parts that distinguish it from the other sweeps of a sweep file."""
        rate = self.place.record(1).link_bytes_per_second
        parts = (
            self.workload.name,
            "" if self.strategy == "ddp" else self.strategy,
            "" if rate is None else format_bit_rate(rate),
            "" if self.remedy.is_default else self.remedy.label,
            f"repeat {self.repeat}" if self.repeat else "",
        )
        return ", ".join(part for part in parts if part)

    def point_label(self, point: SweepPoint) -> str:
        workers = format_count(point.workers, "worker")
        if nodes := self.place.record(point.workers).nodes:
            workers += f" on {format_count(len(nodes), 'node')}"
        return f"{self.label}: {workers}, batch {point.batch_per_worker}"

    @property
    def used_cores(self) -> list[int]:
        """The cores of this machine that the largest worker count uses."""
        return self.list_used_cores(len(self.cores_by_worker))

    def list_used_cores(self, workers: int) -> list[int]:
        return [core for cores in self.cores_by_worker[:workers] for core in cores]


PointState = Literal["stored", "started", "running", "finished", "rejected"]


@dataclass(frozen=True)
class SweepEvent:
    """A change of one point's state, and the progress of all sweeps."""

    sweep: Sweep
    point: SweepPoint
    state: PointState
    progress: ProgressUpdate
    measurement: Measurement | None = None
