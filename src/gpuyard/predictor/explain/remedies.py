"""Find changes that would help one configuration, their gain, and the knee with and without them.

Proposals cover the batch, the exchange of gradients (listed by the strategy), links (the next faster ones in the
catalog), the input path of samples, the precision, and options of the software.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuyard import units
from gpuyard.catalog import Link, links
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.hardware.presets import list_topologies
from gpuyard.predictor.compute import choose_half_precision, resolve_compute_precision
from gpuyard.predictor.knee import DEFAULT_THRESHOLD, Knee, find_knee, list_knee_placements
from gpuyard.predictor.placement import Placement
from gpuyard.predictor.platform import find_network
from gpuyard.predictor.predicted import Prediction
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.software_stacks.evidence import ratio_to_formulas
from gpuyard.predictor.strategies.remedies import ACCUMULATED_STEPS, Proposal, Remedy
from gpuyard.predictor.table import StepTable, samples_per_second
from gpuyard.specs import Cluster, ExchangeOptions, Network

_MIN_GAIN = 1.03
BATCH_FACTORS = (8, 4, 2)
_MORE_FLOWS = 4
# key of the workload → change and caveat
_SOFTWARE = {
    "channels_last": (
        "channels_last (memory layout of convolutions)",
        "model and inputs.to(memory_format=torch.channels_last); a few models get slower",
    ),
    "compile": ("torch.compile", "gains differ between models, and the first steps take minutes"),
    "fused_attention": (
        "fused attention",
        "torch.nn.functional.scaled_dot_product_attention or FlashAttention, if the model does not use it already",
    ),
}


@dataclass(frozen=True)
class Knees:
    """The knee of the current scenario, and that with the remedy that reaches the highest rate."""

    current: Knee
    with_remedy: Knee | None
    remedy: str | None


def find_remedies(scenario: PlatformScenario, prediction: Prediction) -> tuple[Remedy, ...]:
    """Find remedies for one predicted configuration, the most helpful first."""
    if scenario.cluster is not None:
        return find_remedies_and_knees(scenario, prediction)[0]
    scenario = scenario.change_batch(prediction.batch_per_gpu)
    if not scenario.fits(prediction.gpus):
        return ()
    return _select_helpful(_find_generic_remedies(scenario, prediction.placement))


def find_remedies_and_knees(
    scenario: PlatformScenario, prediction: Prediction, threshold: float = DEFAULT_THRESHOLD
) -> tuple[tuple[Remedy, ...], Knees]:
    """Find remedies that fit and gain enough, and the knee with and without the best of them.

    If the configuration does not fit, only remedies that make it fit are returned. The formulas give the relative
    gain; if measured figures differ from the formulas, the gain applies to the figures.
    """
    scenario, here = scenario.change_batch(prediction.batch_per_gpu), prediction.placement
    current_rate = float(scenario.samples_per_second([here])[0])
    fits = scenario.fits(here.gpus)
    proposals = [proposal for proposal in list_proposals(scenario, here) if proposal.fits(here)]
    placements = _list_placements(scenario, here)
    counts = [placement.gpus for placement in placements]
    # ratios of the expected rates to those of the formulas
    ratios, ratio_here = np.ones(len(placements)), 1.0
    if prediction.before is not None:
        ratios = ratio_to_formulas(scenario, placements)
        ratio_here = prediction.samples_per_second / current_rate
    knee = find_knee(counts, scenario.samples_per_second(placements) * ratios, threshold)
    remedies = [
        replace(proposal.evaluate(here, current_rate), makes_fit=not fits) for proposal in proposals
    ]
    if fits:
        more_hardware = _find_hardware_remedies(scenario, here, knee, ratio_here)
        remedies += [
            replace(remedy, gain=remedy.samples_per_second / current_rate)
            for remedy in more_hardware
        ]
    remedies = [
        replace(remedy, samples_per_second=remedy.samples_per_second * ratio_here)
        for remedy in remedies
    ]
    helpful = _select_helpful(remedies)
    helpful_changes = {remedy.change for remedy in helpful}
    improved_knees = [
        (
            find_knee(counts, proposal.scenario.samples_per_second(placements) * ratios, threshold),
            proposal.change,
        )
        for proposal in proposals
        if proposal.change in helpful_changes
    ]
    best = max(improved_knees, key=lambda pair: pair[0].samples_per_second, default=(None, None))
    return helpful, Knees(knee, *best)


def _select_helpful(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    helpful = [remedy for remedy in remedies if remedy.gain >= _MIN_GAIN or remedy.makes_fit]
    return tuple(sorted(helpful, key=lambda remedy: -remedy.gain))


def _list_placements(scenario: PlatformScenario, here: Placement) -> tuple[Placement, ...]:
    platform, limit = scenario.platform, scenario.strategy.max_machines
    nodes = platform.nodes if limit is None else min(limit, platform.nodes)
    in_machine = platform.gpus_per_node // (platform.other_jobs + 1)  # other jobs use the rest
    return list_knee_placements(nodes, in_machine, here.gpus_per_node if here.nodes > 1 else None)


def _find_hardware_remedies(
    scenario: PlatformScenario, here: Placement, knee: Knee, ratio_here: float
) -> Iterator[Remedy]:
    """Yield remedies by faster or more GPUs, at the rates of the formulas."""
    table = scenario.build_placement_table([here])
    yield Remedy("GPUs twice as fast", float(samples_per_second(table.double_speed("gpu"))[0]), 0.0)
    if knee.gpus > here.gpus:
        what = f"{knee.gpus} GPUs of the cluster (the knee)"
        yield Remedy(what, knee.samples_per_second / ratio_here, 0.0, adds_gpus=True)
    elif here.gpus == knee.gpus == knee.max_gpus and here.nodes > 1:
        # all existing GPUs are worth it: twice as many machines on the same network
        rate = float(samples_per_second(replace(table, nodes=table.nodes * 2))[0])
        yield Remedy("twice as many machines", rate, 0.0, adds_gpus=True)


def _find_generic_remedies(scenario: PlatformScenario, here: Placement) -> Iterator[Remedy]:
    """Yield remedies for measured hardware whose parts have no names, whether they help or not."""
    table = scenario.build_placement_table([here])
    current_rate = float(samples_per_second(table)[0])
    for what, changed in _list_changed_tables(scenario, table, here):
        rate = float(samples_per_second(changed)[0])
        yield Remedy(what, rate, rate / current_rate)


def _list_changed_tables(
    scenario: PlatformScenario, table: StepTable, here: Placement
) -> Iterator[tuple[str, StepTable]]:
    yield "GPUs twice as fast", table.double_speed("gpu")
    if here.gpus > 1:
        yield from _list_cheaper_exchanges(scenario, table)
    batch = scenario.workload.batch_per_gpu
    for factor in BATCH_FACTORS:
        if scenario.change_batch(batch * factor).fits(here.gpus):
            larger = replace(table, batch_per_gpu=table.batch_per_gpu * factor)
            yield f"{factor} × the batch ({batch * factor} per GPU)", larger
            break
    if np.isfinite(table.storage_bytes_per_second[0]):
        yield "storage twice as fast", table.double_speed("storage")


def _list_cheaper_exchanges(
    scenario: PlatformScenario, table: StepTable
) -> Iterator[tuple[str, StepTable]]:
    if table.sent_share == 1:
        yield "gradients sent as 16-bit numbers", replace(table, sent_share=table.sent_share / 2)
    if scenario.strategy.find_conflict(ExchangeOptions(accumulate=ACCUMULATED_STEPS)) is None:
        accumulated = replace(table, accumulate=table.accumulate * ACCUMULATED_STEPS)
        yield f"gradients exchanged every {ACCUMULATED_STEPS} steps (accumulation)", accumulated
    if table.nodes[0] > 1:
        yield "a network twice as fast", table.double_speed("network")
    if table.gpus_per_node[0] > 1:
        yield "links inside the machine twice as fast", table.double_speed("pcie")


def list_proposals(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """Yield all proposals except other or more GPUs, whether they help or not."""
    if scenario.fits(here.gpus):
        yield from _propose_larger_batch(scenario, here)
    else:
        yield from _propose_smaller_batch(scenario, here)
    if here.gpus > 1:
        for propose in scenario.strategy.remedies:
            yield from propose(scenario, here)
        if scenario.cluster is not None:
            yield from _propose_links(scenario, scenario.cluster, here)
    # Each alone: if both inputs are too slow, the other one limits the gain.
    yield from _propose_faster_storage(scenario, here)
    yield from _propose_more_workers(scenario, here)
    yield from _propose_precisions(scenario, here)
    yield from _propose_software(scenario)


def _propose_larger_batch(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    for factor in BATCH_FACTORS:
        batch = factor * scenario.workload.batch_per_gpu
        larger = scenario.change_batch(batch)
        if larger.fits(here.gpus):
            yield Proposal(
                f"{factor} × the batch ({batch} per GPU)",
                larger,
                f"each update uses {factor} × the samples: check learning rate and accuracy",
                larger.memory_bytes(here.gpus),
            )
            return


def _propose_smaller_batch(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """Propose the largest batch that fits."""
    batch = scenario.largest_batch(here.gpus)
    if batch:
        smaller = scenario.change_batch(batch)
        yield Proposal(
            f"a batch of {batch} per GPU",
            smaller,
            "each update uses fewer samples; accumulation compensates for it",
            smaller.memory_bytes(here.gpus),
        )


def _propose_links(
    scenario: PlatformScenario, cluster: Cluster, here: Placement
) -> Iterator[Proposal]:
    """Propose other links between the machines and inside them."""
    network = find_network(cluster)
    if here.nodes > 1 and network is not None:
        for what, other, caveat in _list_networks(network):
            changed = cluster.model_copy(update={"network": other})
            yield Proposal(what, scenario.change_cluster(changed), caveat)
    if here.gpus_per_node > 1:
        yield from _propose_best_topology(scenario, cluster, here)


def _list_networks(network: Network) -> Iterator[tuple[str, Network, str]]:
    current = links().get(network.link) if network.link else None
    rdma = (network.protocol or (current.protocol if current else "tcp")) == "rdma"
    capped = network.per_flow is not None and not rdma
    if capped:
        flows = network.flows * _MORE_FLOWS
        many = network.model_copy(update={"flows": flows})
        yield f"{flows} TCP flows between two machines", many, "NCCL_NSOCKS_PERTHREAD"
    port = current.raw_bytes_per_second if current else network.rate or 0.0
    family = current.id.split("-")[0] if current else "roce" if rdma else "ethernet"
    faster = _find_next_faster_link(family, port)
    if faster is None:
        what = "a network twice as fast"
        update: dict[str, object] = {"rate": 2 * port, "link": None}
        update["protocol"] = "rdma" if rdma else "tcp"
    else:
        what = f"{faster.id} ({units.format_bit_rate(faster.raw_bytes_per_second)}) as network"
        update = {"link": faster.id, "rate": None}
    yield what, network.model_copy(update=update), ""
    if not rdma and not capped:  # clouds that cap flows don't let users choose the protocol
        # a latency in the spec is that of TCP
        over_rdma = network.model_copy(update={"protocol": "rdma", "latency": None})
        yield "RDMA (RoCE) over the same network", over_rdma, "cards and switches must support it"


def _find_next_faster_link(family: str, bytes_per_second: float) -> Link | None:
    faster = (
        link
        for link in links()
        if link.id.split("-")[0] == family and link.raw_bytes_per_second > 1.01 * bytes_per_second
    )
    return min(faster, key=lambda link: link.raw_bytes_per_second, default=None)


def _propose_best_topology(
    scenario: PlatformScenario, cluster: Cluster, here: Placement
) -> Iterator[Proposal]:
    gpu, machine = resolve_machine(cluster)
    candidates: list[Proposal] = []
    for topology in list_topologies(gpu):
        if topology == machine.topology:
            continue
        rewired = machine.model_copy(update={"topology": topology})
        # a named machine has its own network cards; a described one needs them in the spec
        update = {"machine": rewired, "network": find_network(cluster)}
        try:
            other = scenario.change_cluster(cluster.model_copy(update=update))
        except UserMistake:
            continue  # this topology does not support that many GPUs
        candidates.append(Proposal(f"{topology} machines with the same GPUs", other))
    if candidates:
        yield max(candidates, key=lambda proposal: proposal.rate(here))


def _propose_faster_storage(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    rate = scenario.platform.storage_bytes_per_second
    if rate is None:
        return
    unlimited = replace(
        scenario, platform=replace(scenario.platform, storage_bytes_per_second=None)
    )
    table = unlimited.build_placement_table([here])
    needed = float(samples_per_second(table)[0]) * table.traffic.storage_bytes_per_sample
    if needed > rate:
        yield Proposal(
            f"storage that reads {units.format_byte_rate(needed)}",
            unlimited,
            "or a dataset kept in the machines' memory",
        )


def _propose_more_workers(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    table = scenario.build_placement_table([here])
    preprocess = table.traffic.preprocess_seconds
    if preprocess == 0 or scenario.workload.dataset is None:
        return
    current_workers = float(table.input_workers[0])
    unlimited = replace(table, input_workers=table.input_workers * math.inf)
    rate_per_gpu = float(samples_per_second(unlimited)[0]) / here.gpus
    needed = math.ceil(rate_per_gpu * preprocess)
    if needed <= current_workers:
        return
    cores = scenario.platform.cores
    has_cores = cores is None or needed * here.gpus_per_node <= cores
    dataset = scenario.workload.dataset.model_copy(update={"input_workers": needed})
    workload = scenario.workload.model_copy(update={"dataset": dataset})
    platform = scenario.platform if has_cores else replace(scenario.platform, cores=None)
    workers = f"{needed} input workers per GPU"
    yield Proposal(
        workers
        if has_cores
        else f"{workers}, on machines with {needed * here.gpus_per_node} free cores",
        replace(scenario, workload=workload, platform=platform),
        "or samples preprocessed once and stored, or preprocessed on the GPU",
    )


def _propose_precisions(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """Propose other precisions on a described GPU; the exchange stays the same size."""
    gpu, precision = scenario.gpu, scenario.precision
    if gpu is None:
        return
    # on other GPUs, tf32 needs more than this setting
    if precision == "fp32" and gpu.vendor == "NVIDIA" and gpu.tf32_tflops is not None:
        yield Proposal(
            "tf32 instead of fp32",
            scenario.change_precision("tf32"),
            "torch.set_float32_matmul_precision('high'); products are rounded, rarely harmful",
        )
    half = choose_half_precision(gpu)
    if resolve_compute_precision(precision, gpu) not in ("bf16", "fp16") and precision != half:
        other = scenario.change_precision(half)
        scaling = "needs loss scaling (GradScaler); " if half == "fp16" else ""
        exchanged = "gradients are still exchanged in fp32; " if here.gpus > 1 else ""
        yield Proposal(
            f"{half} training (mixed precision, autocast)",
            other,
            f"{exchanged}{scaling}compare the loss",
            other.memory_bytes(here.gpus),
        )


def _propose_software(scenario: PlatformScenario) -> Iterator[Proposal]:
    """Propose options of the software that make one GPU faster and that the workload does not use yet."""
    if scenario.gpu is None:
        return
    for option, (change, caveat) in _SOFTWARE.items():
        if not getattr(scenario.workload, option):
            yield Proposal(change, scenario.change_software(option), caveat)
