"""Plan the runs of a bench: batch sizes × link rates × machines, with one GPU per machine and with all GPUs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from gpuyard.catalog.specfiles import read_workload
from gpuyard.deploy.access.place import create_place
from gpuyard.deploy.ansible.run import get_roles
from gpuyard.deploy.bench.place import DeployedHosts, LabMachines
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import find_network_rate, resolve_machine
from gpuyard.measure.training.matrix import Matrix
from gpuyard.measure.training.plan import check_point_count, plan_sweep
from gpuyard.measure.training.run import estimate_point_seconds
from gpuyard.run.probe import probe_nodes
from gpuyard.specs import Dataset, Workload
from gpuyard.specs.sweep import SweepLink
from gpuyard.units import format_bit_rate
from gpuyard.workloads.profiles import catalog_profile

Series = Literal["one GPU of each machine", "one machine", "all GPUs of each machine"]
BATCHES = (32, 64, 96)
STRATEGIES = ("ddp", "horovod")
NO_DATA = "none"
_IMAGES_FOLDER = "gpuyard-images"
_IMAGENET = {"samples": 1_281_167, "bytes_per_sample": "115 kB"}
_MAX_ALL_COUNTS = (
    6  # above this number of machines, only even numbers are measured, as in the founding paper
)
_ATTEMPTS = 3
_LAYOUT = re.compile(r"\s*(\d{1,5})\s*[x×]\s*(\d{1,3})\s*")


@dataclass(frozen=True)
class BenchOptions:
    """Restrictions of a bench; None means no restriction."""

    workload: str = "resnet50"
    batches: Sequence[int] | None = None
    nodes: Sequence[int] | None = None
    rates: Sequence[float] | None = None
    data: str | None = None
    """A folder in the shared storage; None means that images are generated, and "none" that nothing is read."""
    gpu: str | None = None
    seconds_per_point: float = 8.0
    strategies: Sequence[str] = ("ddp",)
    layouts: Sequence["Layout"] | None = None
    """Measure only these."""


@dataclass(frozen=True)
class Layout:
    """A number of machines, and the GPUs that are used on each."""

    nodes: int
    gpus: int

    @classmethod
    def parse(cls, text: str) -> "Layout":
        match = _LAYOUT.fullmatch(text)
        if match is None:
            raise UserMistake(f"expected MACHINESxGPUS like 1x10, got {text!r}")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class DeploymentBench:
    """All runs as a matrix, and the series that each of its sweeps belongs to."""

    matrix: Matrix
    series: tuple[Series, ...]
    links: tuple[float | None, ...]
    workload: Workload
    images_folder: str | None
    """The folder for generated images, if any are needed."""

    @property
    def seconds(self) -> float:
        return sum(estimate_point_seconds(self.matrix.sweeps).values())


def plan_bench(
    loaded: LoadedDeployment, hosts: tuple[Host, ...], options: BenchOptions, *, query_gpus: bool
) -> DeploymentBench:
    """Check everything that can be checked before a process starts.

    With `query_gpus`, the machines report which GPUs they have.
    """
    for strategy in options.strategies:
        if strategy not in STRATEGIES:
            raise UnknownName("strategy", strategy, STRATEGIES)
    gpu, machine = resolve_machine(loaded.cluster)
    synthetic = options.gpu or (gpu.id if loaded.target.kind == "lab" else None)
    workload, images_folder = _choose_workload(loaded, options)
    counts = _choose_counts(len(hosts), options.nodes)
    batches = tuple(options.batches or BATCHES)
    rates = _choose_rates(loaded, options.rates)
    base_place = _create_place(loaded, hosts)
    if synthetic is None:
        reports = probe_nodes(base_place) if query_gpus else ()
        gpus = tuple(report.gpus for report in reports)
        base_place = replace(base_place, gpus=gpus or ((gpu.name,) * machine.gpus,) * len(hosts))
    runs: list[tuple[Series, DeployedHosts, list[int]]] = []
    for index, rate in enumerate(rates):
        one_gpu_each = _set_rate(loaded, base_place, rate)
        all_gpus = replace(one_gpu_each, slots=(machine.gpus,) * len(hosts))
        for name, workers in _choose_runs(len(hosts), machine.gpus, counts, options.layouts):
            if name == "one machine" and index > 0:
                continue  # the link rate does not matter within one machine
            place = one_gpu_each if name == "one GPU of each machine" else all_gpus
            runs.append((name, place, workers))
    per_run = len(batches) * len(options.strategies)
    check_point_count(sum(len(workers) * per_run for _, _, workers in runs))
    plan = partial(plan_sweep, gpu=synthetic, seconds_per_point=options.seconds_per_point)
    by_link = []
    for _, hosts_place, workers in runs:
        rate = hosts_place.link_bytes_per_second
        link = None if rate is None else SweepLink.model_construct(rate=rate)
        sweeps = tuple(
            plan(workload, workers, batches, place=hosts_place, strategy=strategy)
            for strategy in options.strategies
        )
        by_link.append((link, sweeps))
    matrix = Matrix(loaded.deployment.name, tuple(by_link), _ATTEMPTS)
    series = tuple(name for name, _, _ in runs for _ in options.strategies)
    return DeploymentBench(matrix, series, rates, workload, images_folder)


def _choose_workload(
    loaded: LoadedDeployment, options: BenchOptions
) -> tuple[Workload, str | None]:
    """Return the workload, and the folder in which images must be generated for it."""
    workload = read_workload(options.workload, Path())
    shared = loaded.deployment.shared
    if options.data is None and _trains_on_images(workload) and _has_storage(loaded):
        folder = f"{shared}/{_IMAGES_FOLDER}"
        return _set_source(workload, folder), folder
    if options.data in (None, NO_DATA):
        if workload.dataset is None:
            return workload.model_copy(update={"dataset": Dataset.model_validate(_IMAGENET)}), None
        return workload, None
    source = options.data if options.data.startswith("/") else f"{shared}/{options.data}"
    if not source.startswith(f"{shared}/") or "/.." in source:
        raise UserMistake(
            f"--dataset must be a folder in the shared storage {shared}, and {options.data} is not in it"
        )
    return _set_source(workload, source), None


def _set_source(workload: Workload, source: str) -> Workload:
    dataset = workload.dataset or Dataset.model_validate(_IMAGENET)
    return workload.model_copy(update={"dataset": dataset.model_copy(update={"source": source})})


def _trains_on_images(workload: Workload) -> bool:
    """Return whether this is a catalog model for images; a user's own workload names its dataset."""
    profile = catalog_profile(workload)
    return workload.dataset is None and profile is not None and profile.sample.startswith("image")


def _has_storage(loaded: LoadedDeployment) -> bool:
    return "shared-storage" in get_roles(loaded.deployment, 0)


def _choose_runs(
    machines: int, gpus: int, counts: list[int], layouts: Sequence[Layout] | None
) -> list[tuple[Series, list[int]]]:
    """Return the numbers of GPUs of each series: those of the layouts, or all."""
    if layouts is None:
        several = [gpus * nodes for nodes in counts if nodes > 1]
        runs: list[tuple[Series, list[int]]] = [("one GPU of each machine", counts)]
        if gpus > 1 and counts[0] == 1:
            runs.append(("one machine", _choose_counts(gpus, None)[1:]))
        if gpus > 1 and several:
            runs.append(("all GPUs of each machine", several))
        return runs
    by_series: dict[Series, set[int]] = {}
    for layout in layouts:
        if not (1 <= layout.nodes <= machines and 1 <= layout.gpus <= gpus):
            raise UserMistake(
                f"the layout {layout.nodes}x{layout.gpus} needs more than the deployment has: {machines}x{gpus}"
            )
        if layout.gpus not in (1, gpus) and layout.nodes > 1:
            raise UserMistake(
                f"the layout {layout.nodes}x{layout.gpus} must use one GPU or all {gpus} GPUs of each machine"
            )
        series: Series = (
            "one GPU of each machine"
            if layout.gpus == 1
            else "one machine"
            if layout.nodes == 1
            else "all GPUs of each machine"
        )
        by_series.setdefault(series, set()).add(layout.nodes * layout.gpus)
    return [(series, sorted(workers)) for series, workers in by_series.items()]


def _choose_counts(maximum: int, requested: Sequence[int] | None) -> list[int]:
    if requested is not None:
        if not requested or min(requested) < 1 or max(requested) > maximum:
            raise UserMistake(
                f"expected 1 to {maximum} machines for --nodes, got {max(requested, default=0)}"
            )
        return sorted(set(requested))
    if maximum <= _MAX_ALL_COUNTS:
        return list(range(1, maximum + 1))
    return sorted({1, *range(2, maximum, 2), maximum})


def _choose_rates(
    loaded: LoadedDeployment, requested: Sequence[float] | None
) -> tuple[float | None, ...]:
    settable = loaded.target.link_rates(loaded.cluster)
    cluster_rate = find_network_rate(loaded.cluster)
    if settable:
        return tuple(sorted(set(requested or settable)))
    if requested is not None and set(requested) != {cluster_rate}:
        hint = "" if cluster_rate is None else f"; the cluster's is {format_bit_rate(cluster_rate)}"
        raise UserMistake(f"the target {loaded.target.kind} cannot set the rate of links{hint}")
    return (cluster_rate,)


def _create_place(loaded: LoadedDeployment, hosts: tuple[Host, ...]) -> DeployedHosts:
    if loaded.target.kind == "lab":
        return replace(create_place(loaded, hosts, LabMachines), state=loaded.state)
    return create_place(loaded, hosts, DeployedHosts)


def _set_rate(loaded: LoadedDeployment, place: DeployedHosts, rate: float | None) -> DeployedHosts:
    settable = loaded.target.link_rates(loaded.cluster)
    if not settable:
        return replace(place, link_bytes_per_second=rate)
    return replace(
        place,
        link_bytes_per_second=rate,
        set_link=partial(loaded.target.set_link_rate, loaded.state),
        usual_link_bytes_per_second=settable[-1],
    )
