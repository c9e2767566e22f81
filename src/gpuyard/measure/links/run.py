"""Runs a plan: GPUs first, then memory and loopback, and sets what came out beside the model."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import psutil

from gpuyard.errors import GpuyardError
from gpuyard.hardware.graph import MachineGraph
from gpuyard.measure.links.compare import compare, find_slow_links
from gpuyard.measure.links.expected import rated_machine
from gpuyard.measure.links.facts import read_host_facts
from gpuyard.measure.links.loopback import loopback_seconds
from gpuyard.measure.links.memory import copy_seconds
from gpuyard.measure.links.plan import LinkPlan
from gpuyard.measure.links.records import (
    HostFacts,
    LinkBench,
    LinkMeasurement,
    PlannedLink,
)
from gpuyard.measure.progress import ProgressMeter, Tell
from gpuyard.measure.record import made_now
from gpuyard.units import format_bytes

_LOOK_SECONDS = 0.2


def run_links(
    plan: LinkPlan,
    tell: Tell = lambda _progress: None,
    *,
    discover: Callable[[], MachineGraph] | None = None,
) -> LinkBench:
    """Measure all links of the plan, and compare those of GPUs with the graph of this host."""
    busy_share = psutil.cpu_percent(interval=_LOOK_SECONDS) / 100
    look = partial(read_host_facts, addresses=plan.addresses, busy_share=busy_share)
    facts: HostFacts | None = None
    measured: list[LinkMeasurement] = []
    meter = ProgressMeter(plan.links)
    for link in plan.links:
        if facts is None and link.kind not in ("host-gpu", "gpu-gpu"):
            facts = look()  # the GPUs' links are still awake
        tell(meter.at(link, 0.0, link.label))
        measured.append(measure_link(plan, link))
        tell(meter.at(link, 1.0, link.label))
    facts = facts or look()
    graph, notes = _model(plan, facts, discover or _discover)
    links = compare(graph, measured)
    return LinkBench(
        **made_now(plan.key),
        size_bytes=plan.size_bytes,
        repeats=plan.repeats,
        host=plan.testbed,
        facts=facts,
        model=graph.name if graph else None,
        links=links,
        findings=find_slow_links(graph, links, facts),
        notes=(*notes, *_cache_note(plan, facts)),
    )


def measure_link(plan: LinkPlan, link: PlannedLink) -> LinkMeasurement:
    """One link, as often as the plan says."""
    both_ways = link.direction == "both-ways"
    if link.kind == "memory":
        cores = plan.cores[: link.cores]
        seconds = copy_seconds(plan.size_bytes, cores, plan.repeats)
        return LinkMeasurement.of(link, 2 * plan.size_bytes, seconds)
    if link.kind == "loopback":
        seconds = loopback_seconds(plan.size_bytes, plan.repeats, both_ways=both_ways)
    else:
        seconds = _gpu_seconds(plan, link)
    return LinkMeasurement.of(link, (1 + both_ways) * plan.size_bytes, seconds)


def _gpu_seconds(plan: LinkPlan, link: PlannedLink) -> list[float]:
    if plan.probe is None:
        raise ValueError(f"{link.label} is in the plan of a machine without GPUs")
    try:
        return plan.probe.seconds(link, plan.repeats)
    except RuntimeError as error:  # torch's own, out of memory among them
        first_line = str(error).partition("\n")[0]
        raise GpuyardError(
            f"{link.label} could not be measured: {first_line}; try fewer --bytes, and look at "
            "nvidia-smi for who else uses the GPU"
        ) from error


def _model(
    plan: LinkPlan, facts: HostFacts, discover: Callable[[], MachineGraph]
) -> tuple[MachineGraph | None, tuple[str, ...]]:
    """This host's graph as it should be, or why there is none to compare with."""
    if not plan.gpus:
        return None, (
            "There is no GPU that PyTorch can use here, so memory and loopback alone were measured; "
            "the model has no rate for them.",
        )
    try:
        graph = rated_machine(discover(), facts)
    except GpuyardError as error:
        return None, (f"There is nothing to compare with: {error}",)
    return graph, graph.notes


def _discover() -> MachineGraph:
    from gpuyard.hardware.discover import discover_machine

    return discover_machine()


def _cache_note(plan: LinkPlan, facts: HostFacts) -> Iterator[str]:
    # STREAM's rule: arrays of four times the last-level cache, else the cache answers
    cache = facts.last_level_cache_bytes
    if cache and plan.size_bytes < 4 * cache:
        yield (
            f"A copy of {format_bytes(plan.size_bytes)} is answered in part by the cache of "
            f"{format_bytes(cache)}: for the rate of memory itself ask for --bytes "
            f"'{format_bytes(math.ceil(4 * cache / 1e8) * 1e8)}' or more."
        )
