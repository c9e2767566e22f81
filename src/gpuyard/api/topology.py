"""Describe how the GPUs of a machine are connected, and the resulting bandwidth."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import (
    read_cluster,
    read_counts,
    read_profiled_workload,
)
from gpuyard.api.result import Result, Row
from gpuyard.catalog.short_names import find_gpu
from gpuyard.draw.topology import draw_topology_svg
from gpuyard.errors import UserMistake
from gpuyard.hardware import PRESETS, MachineGraph, build_preset
from gpuyard.predictor.topology import summarize_topology
from gpuyard.report.answers.topology import topology_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.specs import Cluster, Workload


def topology(
    preset: str | None = None,
    *,
    gpu: str | None = None,
    gpus: int | None = None,
    on: "str | Path | Cluster | None" = None,
    file: str | Path | None = None,
    text: str | None = None,
) -> Result[Row]:
    """Draw a machine: a preset like "dual-root", a cluster's machine, a topology file, or by default this one.

    `text` is the content of a topology file, like the output of `nvidia-smi topo -m`.
    """
    if sum(source is not None for source in (preset, file, on, text)) > 1:
        raise UserMistake("use only one of --preset, --from, and --on")
    if gpus is not None and preset is None:
        raise UserMistake("--gpus needs --preset: other sources have a number of GPUs")
    if text is not None:
        from gpuyard.hardware.readers.topology_file import graph_from_text

        graph = graph_from_text(text, "the pasted text", find_gpu(gpu).id if gpu else None)
    else:
        graph = _build_graph(preset, file, on, gpu=gpu, gpus=gpus)
    answer = topology_answer(graph, summarize_topology(graph))
    return Result(answer, draw=lambda: draw_topology_svg(graph))


def _build_graph(
    preset: str | None,
    file: str | Path | None,
    cluster: "str | Path | Cluster | None",
    *,
    gpu: str | None,
    gpus: int | None,
) -> MachineGraph:
    model = find_gpu(gpu) if gpu is not None else None
    if preset is not None:
        defaults = PRESETS.get(preset)
        default = find_gpu(defaults.default_gpu if defaults else "gtx-1080-ti")
        count = gpus or (defaults.default_gpus if defaults else 1)
        return build_preset(preset, model or default, count)
    if cluster is not None:
        from gpuyard.hardware.clusters import resolve_machine

        cluster_gpu, machine = resolve_machine(read_cluster(cluster))
        return build_preset(machine.topology, cluster_gpu, machine.gpus, machine.socket_link)
    if file is not None:
        from gpuyard.hardware.readers.topology_file import read_topology

        return read_topology(Path(file), model.id if model else None)
    from gpuyard.hardware.discover import discover_machine

    return discover_machine()


def compare_topologies(
    layouts: "Sequence[str]",
    *,
    workload: "str | Path | Workload" = "resnet50",
    gpu: str = "gtx-1080-ti",
    gpus: "str | int | Sequence[int]" = (2, 4, 8),
    batch: int | None = None,
    precision: str | None = None,
) -> Result[Row]:
    """Compare topologies by the throughput of a workload."""
    from gpuyard.predictor.compute import describe_precision
    from gpuyard.predictor.topology import compare_layouts
    from gpuyard.report.answers.topology import comparison_answer

    spec, profile = read_profiled_workload(workload, precision)
    samples = batch or spec.batch_per_gpu
    counts = read_counts(gpus, "number of GPUs")
    model = find_gpu(gpu)
    compared = compare_layouts(spec, profile, layouts, model, counts, batch=samples)
    note = describe_precision(model, spec, profile)
    return Result(comparison_answer(spec.name, model.id, samples, compared, note))


def lanes(
    cpu: str | None = None,
    *,
    sockets: int = 1,
    gpu: str = "rtx-4090",
    gpus: int = 4,
    nic: str | None = None,
    nics: int = 1,
    drives: int = 1,
) -> Result[Row]:
    """Show whether a CPU, or each CPU of the catalog, has enough PCIe lanes for GPUs, network cards, and drives."""
    from gpuyard.catalog import links
    from gpuyard.catalog.hardware import cpus
    from gpuyard.hardware.lanes import create_lane_budget
    from gpuyard.report.answers.topology import all_lanes_answer, cpu_lanes_answer

    model = find_gpu(gpu)
    card = links().get(nic) if nic else None
    if card is not None and card.kind not in ("ethernet", "infiniband"):
        raise UserMistake(f"--nic: {nic} connects GPUs inside a machine, not machines")
    candidates = [cpus().get(cpu)] if cpu else [c for c in cpus() if c.max_sockets >= sockets]
    budgets = [
        create_lane_budget(c, sockets, model, gpus, nic=card, nics=nics, drives=drives)
        for c in candidates
    ]
    return Result(all_lanes_answer(budgets) if cpu is None else cpu_lanes_answer(budgets[0]))


def rings(
    gpus: int = 4, *, size: str = "100 MB", rate: str = "10 Gbit/s", pieces: int = 4
) -> Result[Row]:
    """Show a broadcast and an all-reduce over a ring step by step."""
    from gpuyard import units
    from gpuyard.draw.rings import draw_schedule_svg
    from gpuyard.predictor.explain.rings import schedule_all_reduce, schedule_broadcast
    from gpuyard.report.answers.rings import rings_answer

    size_bytes, bytes_per_second = units.parse_bytes(size), units.parse_rate(rate)
    if size_bytes <= 0 or bytes_per_second <= 0:
        raise UserMistake("--bytes and --rate must be greater than 0")
    broadcasts = [
        schedule_broadcast(gpus, size_bytes, bytes_per_second, count) for count in (1, pieces)
    ]
    all_reduce = schedule_all_reduce(gpus, size_bytes, bytes_per_second)
    answer = rings_answer([*broadcasts, all_reduce], size_bytes, bytes_per_second)
    return Result(answer, draw=lambda: draw_schedule_svg(all_reduce))
