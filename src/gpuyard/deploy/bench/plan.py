"""Which runs a bench of a deployment comes to: batches × links × machines, with one GPU of each, and with all of them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from gpuyard.catalog.specfiles import read_workload
from gpuyard.deploy.ansible.run import roles_of
from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import PYTHON
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of, network_rate
from gpuyard.measure.training.matrix import Matrix
from gpuyard.measure.training.run import expected_seconds
from gpuyard.measure.training.sweep import Sweep, check_points, plan_sweep
from gpuyard.run.places.hosts import Hosts
from gpuyard.run.places.place import RunPlace
from gpuyard.run.probe import ask
from gpuyard.specs import Dataset, Workload
from gpuyard.specs.sweep import SweepLink
from gpuyard.units import format_bit_rate
from gpuyard.workloads.profiles import catalog_profile

Series = Literal["one GPU of each machine", "one machine", "all GPUs of each machine"]
BATCHES = (32, 64, 96)
NO_DATA = "none"
_MADE = "gpuyard-images"
_IMAGENET = {"samples": 1_281_167, "bytes_per_sample": "115 kB"}
_EVERY_UP_TO = 6  # machines; of more every second number is measured, as the paper did
_ATTEMPTS = 3


@dataclass(frozen=True)
class DeployedHosts(Hosts):
    """A deployment's machines, reached as it says; where its target can, the links are set while something runs."""

    link_bytes_per_second: float | None = None
    """Between machines; None: nobody knows."""
    set_link: Callable[[float], None] | None = None
    usual_link_bytes_per_second: float | None = None
    """To which links go back."""

    def ring_link_bytes_per_second(self, workers: int) -> float | None:
        one_machine = self.seats(workers)[-1].node == 0
        return None if one_machine else self.link_bytes_per_second

    def identity(self) -> Mapping[str, Any] | None:
        link = self.link_bytes_per_second
        return {**(super().identity() or {}), **({} if link is None else {"link": link})}

    def record(self, workers: int) -> RunPlace:
        found = super().record(workers)
        return found.model_copy(update={"link_bytes_per_second": self.link_bytes_per_second})

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        if self.set_link is None or self.link_bytes_per_second is None:
            yield self
            return
        self.set_link(self.link_bytes_per_second)
        try:
            yield self
        finally:
            self.set_link(self.usual_link_bytes_per_second or self.link_bytes_per_second)


@dataclass(frozen=True)
class BenchOptions:
    """What narrows it; None: all."""

    workload: str = "resnet50"
    batches: Sequence[int] | None = None
    nodes: Sequence[int] | None = None
    rates: Sequence[float] | None = None
    data: str | None = None
    """A folder of the shared storage; None: made there; "none": nothing is read."""
    gpu: str | None = None
    seconds_per_point: float = 8.0


@dataclass(frozen=True)
class DeploymentBench:
    """All runs as a matrix, and which series each of its sweeps belongs to."""

    matrix: Matrix
    series: tuple[Series, ...]
    links: tuple[float | None, ...]
    workload: Workload
    makes: str | None
    """The folder with images that are made for it."""

    @property
    def seconds(self) -> float:
        return sum(expected_seconds(self.matrix.sweeps).values())

    def series_of(self, sweep: Sweep) -> Series:
        return self.series[self.matrix.sweeps.index(sweep)]


def plan_bench(
    opened: Opened, hosts: tuple[Host, ...], options: BenchOptions, *, asks: bool
) -> DeploymentBench:
    """Everything that can be checked is, before a process starts; `asks`: machines say which GPUs they have."""
    gpu, machine = machine_of(opened.cluster)
    synthetic = options.gpu or (gpu.id if opened.target.kind == "lab" else None)
    workload, makes = _workload(opened, options)
    counts = _counts(len(hosts), options.nodes)
    batches = tuple(options.batches or BATCHES)
    rates = _rates(opened, options.rates)
    place = _place(opened, hosts)
    if synthetic is None:
        names = ask(place) if asks else ()
        gpus = tuple(found.gpus for found in names) or ((gpu.name,) * machine.gpus,) * len(hosts)
        place = replace(place, gpus=gpus)
    runs: list[tuple[Series, DeployedHosts, list[int]]] = []
    for index, rate in enumerate(rates):
        linked = _at(opened, place, rate)
        runs.append(("one GPU of each machine", linked, counts))
        if machine.gpus > 1:
            full = replace(linked, room=(machine.gpus,) * len(hosts))
            if index == 0 and counts[0] == 1:  # links are not in its way
                runs.append(("one machine", full, _counts(machine.gpus, None)[1:]))
            several = [machine.gpus * nodes for nodes in counts if nodes > 1]
            if several:
                runs.append(("all GPUs of each machine", full, several))
    check_points(sum(len(counts) * len(batches) for _, _, counts in runs))
    plan = partial(plan_sweep, gpu=synthetic, seconds_per_point=options.seconds_per_point)
    by_link = []
    for _, where, workers in runs:
        rate = where.link_bytes_per_second
        link = None if rate is None else SweepLink(rate=f"{8 * rate} bit/s")
        by_link.append((link, (plan(workload, workers, batches, place=where),)))
    matrix = Matrix(opened.deployment.name, tuple(by_link), _ATTEMPTS)
    series = tuple(name for name, _, _ in runs)
    return DeploymentBench(matrix, series, rates, workload, makes)


def _workload(opened: Opened, options: BenchOptions) -> tuple[Workload, str | None]:
    """And the folder that has to be made for it."""
    workload = read_workload(options.workload, Path())
    shared = opened.deployment.shared
    if options.data is None and _trains_on_images(workload) and _has_storage(opened):
        return _reading(workload, f"{shared}/{_MADE}"), f"{shared}/{_MADE}"
    if options.data in (None, NO_DATA):
        if workload.dataset is None:
            return workload.model_copy(update={"dataset": Dataset.model_validate(_IMAGENET)}), None
        return workload, None
    source = options.data if options.data.startswith("/") else f"{shared}/{options.data}"
    if not source.startswith(f"{shared}/") or "/.." in source:
        raise UserMistake(
            f"--data names a folder in the shared storage, {shared}, and {options.data} is not in it"
        )
    return _reading(workload, source), None


def _reading(workload: Workload, source: str) -> Workload:
    known = workload.dataset or Dataset.model_validate(_IMAGENET)
    return workload.model_copy(update={"dataset": known.model_copy(update={"source": source})})


def _trains_on_images(workload: Workload) -> bool:
    """A model of the catalog; what a user's own is trained on its file says."""
    profile = catalog_profile(workload)
    return workload.dataset is None and profile is not None and profile.sample.startswith("image")


def _has_storage(opened: Opened) -> bool:
    return "shared-storage" in roles_of(opened.deployment, 0)


def _counts(most: int, asked: Sequence[int] | None) -> list[int]:
    if asked is not None:
        if not asked or min(asked) < 1 or max(asked) > most:
            raise UserMistake(
                f"expected 1 to {most} machines for --nodes, got {max(asked, default=0)}"
            )
        return sorted(set(asked))
    every = range(1, most + 1) if most <= _EVERY_UP_TO else (1, *range(2, most, 2), most)
    return sorted(set(every))


def _rates(opened: Opened, asked: Sequence[float] | None) -> tuple[float | None, ...]:
    settable = opened.target.link_rates(opened.cluster)
    own = network_rate(opened.cluster)
    if settable:
        return tuple(sorted(set(asked or settable)))
    if asked is not None and set(asked) != {own}:
        known = "" if own is None else f"; the cluster's is {format_bit_rate(own)}"
        raise UserMistake(f"the target {opened.target.kind} can't set the speed of links{known}")
    return (own,)


def _place(opened: Opened, hosts: tuple[Host, ...]) -> DeployedHosts:
    installed = opened.target.environment(opened.deployment) is None
    return DeployedHosts(
        tuple(host.name for host in hosts),
        ssh_config=opened.state.ssh_config,
        python=PYTHON if installed else None,
        directory="/",
    )


def _at(opened: Opened, place: DeployedHosts, rate: float | None) -> DeployedHosts:
    settable = opened.target.link_rates(opened.cluster)
    if not settable:
        return replace(place, link_bytes_per_second=rate)
    return replace(
        place,
        link_bytes_per_second=rate,
        set_link=partial(opened.target.set_link, opened.state),
        usual_link_bytes_per_second=settable[-1],
    )
