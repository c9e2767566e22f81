"""Runs a link bench: GPUs first, then memory and loopback; then compares the rates with the model."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import psutil

from gpuyard.errors import GpuyardError
from gpuyard.hardware.graph import MachineGraph
from gpuyard.measure.links.compare import compare, find_slow_links
from gpuyard.measure.links.expected import build_rated_machine
from gpuyard.measure.links.facts import read_host_facts
from gpuyard.measure.links.loopback import time_loopback
from gpuyard.measure.links.memory import time_copy
from gpuyard.measure.links.plan import LinkPlan
from gpuyard.measure.links.records import (
    HostFacts,
    LinkBench,
    LinkMeasurement,
    PlannedLink,
)
from gpuyard.measure.progress import ProgressCallback, ProgressMeter
from gpuyard.measure.record import create_identity
from gpuyard.units import format_bytes

_LOAD_SECONDS = 0.2


def run_links(
    plan: LinkPlan,
    on_progress: ProgressCallback = lambda _progress: None,
    *,
    discover: Callable[[], MachineGraph] | None = None,
) -> LinkBench:
    """Measure all links of the plan, and compare those of GPUs with the graph of this host."""
    busy_share = psutil.cpu_percent(interval=_LOAD_SECONDS) / 100
    read_facts = partial(read_host_facts, addresses=plan.addresses, busy_share=busy_share)
    facts: HostFacts | None = None
    measured: list[LinkMeasurement] = []
    meter = ProgressMeter(plan.links)
    for link in plan.links:
        if facts is None and link.kind not in ("host-gpu", "gpu-gpu"):
            facts = read_facts()  # before the GPUs' links return to a power-saving speed
        on_progress(meter.advance(link, 0.0, link.label))
        measured.append(measure_link(plan, link))
        on_progress(meter.advance(link, 1.0, link.label))
    facts = facts or read_facts()
    graph, notes = _build_model(plan, facts, discover or _discover)
    links = compare(graph, measured)
    return LinkBench(
        **create_identity(plan.key),
        size_bytes=plan.size_bytes,
        repeats=plan.repeats,
        host=plan.testbed,
        facts=facts,
        model=graph.name if graph else None,
        links=links,
        findings=find_slow_links(graph, links, facts),
        notes=(*notes, *_note_cache(plan, facts)),
    )


def measure_link(plan: LinkPlan, link: PlannedLink) -> LinkMeasurement:
    """Time one link as often as the plan requires."""
    both_ways = link.direction == "both-ways"
    if link.kind == "memory":
        cores = plan.cores[: link.cores]
        seconds = time_copy(plan.size_bytes, cores, plan.repeats)
        return LinkMeasurement.from_seconds(link, 2 * plan.size_bytes, seconds)
    if link.kind == "loopback":
        seconds = time_loopback(plan.size_bytes, plan.repeats, both_ways=both_ways)
    else:
        seconds = _time_gpu_link(plan, link)
    return LinkMeasurement.from_seconds(link, (1 + both_ways) * plan.size_bytes, seconds)


def _time_gpu_link(plan: LinkPlan, link: PlannedLink) -> list[float]:
    if plan.probe is None:
        raise ValueError(f"{link.label} is in the plan of a machine without GPUs")
    try:
        return plan.probe.time_link(link, plan.repeats)
    except RuntimeError as error:  # an error of torch, such as out of memory
        first_line = str(error).partition("\n")[0]
        raise GpuyardError(
            f"{link.label} could not be measured: {first_line}; try fewer --bytes, and check with "
            "nvidia-smi whether other programs use the GPU"
        ) from error


def _build_model(
    plan: LinkPlan, facts: HostFacts, discover: Callable[[], MachineGraph]
) -> tuple[MachineGraph | None, tuple[str, ...]]:
    """Return this host's graph at its rated width with notes, or None and why there is none."""
    if not plan.gpus:
        return None, (
            "PyTorch finds no GPU here, so only memory and loopback were measured; "
            "the model has no rate for them.",
        )
    try:
        graph = build_rated_machine(discover(), facts)
    except GpuyardError as error:
        return None, (f"The rates cannot be compared with a model: {error}",)
    return graph, graph.notes


def _discover() -> MachineGraph:
    from gpuyard.hardware.discover import discover_machine

    return discover_machine()


def _note_cache(plan: LinkPlan, facts: HostFacts) -> Iterator[str]:
    # STREAM's rule: arrays must be at least four times as large as the last-level cache
    cache = facts.last_level_cache_bytes
    if cache and plan.size_bytes < 4 * cache:
        yield (
            f"A copy of {format_bytes(plan.size_bytes)} is served in part by the "
            f"{format_bytes(cache)} cache; to measure memory itself, use --bytes "
            f"'{format_bytes(math.ceil(4 * cache / 1e8) * 1e8)}' or more."
        )
