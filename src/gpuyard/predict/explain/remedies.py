"""What would help one configuration, by how much, and how many GPUs are worth it with and without it: of all that could
be changed about it, the batch, the exchange of gradients (the strategy says what), links (the catalog names the next
faster ones), the way of samples to the GPUs, the precision."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuyard import units
from gpuyard.catalog import Link, links
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.hardware.presets import topologies_of
from gpuyard.predict.compute import computed_in, faster_half
from gpuyard.predict.explain.knee import DEFAULT_THRESHOLD, Knee, find_knee, placements_to_try
from gpuyard.predict.platform import network_of
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import against_formulas
from gpuyard.predict.strategies.remedies import ACCUMULATED_STEPS, Proposal, Remedy
from gpuyard.predict.table import Placement, StepTable, samples_per_second
from gpuyard.specs import Cluster, ExchangeOptions, Network

_LEAST_GAIN = 1.03
BATCH_FACTORS = (8, 4, 2)
_MORE_FLOWS = 4


@dataclass(frozen=True)
class Knees:
    """How many GPUs are worth it, as it is and with the remedy that gets most out of them."""

    as_it_is: Knee
    relieved: Knee | None
    remedy: str | None


def relieve(scenario: PlatformScenario, prediction: Prediction) -> tuple[Remedy, ...]:
    """What would help one predicted configuration, the most helpful first."""
    if scenario.cluster is not None:
        return relieve_with_knees(scenario, prediction)[0]
    there = scenario.with_batch(prediction.batch_per_gpu)
    if not there.fits(prediction.gpus):
        return ()
    return _helpful(_remedies_anywhere(there, prediction.placement))


def relieve_with_knees(
    scenario: PlatformScenario, prediction: Prediction, threshold: float = DEFAULT_THRESHOLD
) -> tuple[tuple[Remedy, ...], Knees]:
    """Remedies that fit and gain enough, and how many GPUs are worth it with and without one of them.

    Where it does not fit as it is, that are those with which it does. What remedies gain is by the formulas. Where
    figures say otherwise than the formulas do, it is a gain on the figures.
    """
    scenario, here = scenario.with_batch(prediction.batch_per_gpu), prediction.placement
    today = float(scenario.samples_per_second([here])[0])
    fits = scenario.fits(here.gpus)
    tried = [proposal for proposal in proposals(scenario, here) if proposal.fits(here)]
    offered = _offered(scenario, here)
    counts = [placement.gpus for placement in offered]
    # of what the formulas say: all of it where nothing was measured and no framework is named
    reached, reached_here = np.ones(len(offered)), 1.0
    if prediction.before is not None:
        reached = against_formulas(scenario, offered)
        reached_here = prediction.samples_per_second / today
    knee = find_knee(counts, scenario.samples_per_second(offered) * reached, threshold)
    found = [replace(proposal.weighed(here, today), makes_fit=not fits) for proposal in tried]
    if fits:
        more = _more(scenario, here, knee, reached_here)
        found += [replace(remedy, gain=remedy.samples_per_second / today) for remedy in more]
    found = [
        replace(remedy, samples_per_second=remedy.samples_per_second * reached_here)
        for remedy in found
    ]
    helpful = _helpful(found)
    worth = {remedy.what for remedy in helpful}
    moved = [
        (
            find_knee(counts, proposal.scenario.samples_per_second(offered) * reached, threshold),
            proposal.what,
        )
        for proposal in tried
        if proposal.what in worth
    ]
    best = max(moved, key=lambda pair: pair[0].samples_per_second, default=(None, None))
    return helpful, Knees(knee, *best)


def _helpful(found: Iterable[Remedy]) -> tuple[Remedy, ...]:
    enough = [remedy for remedy in found if remedy.gain >= _LEAST_GAIN or remedy.makes_fit]
    return tuple(sorted(enough, key=lambda remedy: -remedy.gain))


def _offered(scenario: PlatformScenario, here: Placement) -> tuple[Placement, ...]:
    platform, most = scenario.platform, scenario.strategy.most_machines
    nodes = platform.nodes if most is None else min(most, platform.nodes)
    in_machine = platform.gpus_per_node // (platform.other_jobs + 1)  # other jobs have the rest
    return placements_to_try(nodes, in_machine, here.gpus_per_node if here.nodes > 1 else None)


def _more(
    scenario: PlatformScenario, here: Placement, knee: Knee, reached: float
) -> Iterator[Remedy]:
    """By the formulas, of which the configuration as it is reaches a share."""
    table = scenario.at([here])
    yield Remedy("GPUs twice as fast", float(samples_per_second(table.doubled("gpu"))[0]), 0.0)
    if knee.gpus > here.gpus:
        what = f"{knee.gpus} GPUs of the cluster (the knee)"
        yield Remedy(what, knee.samples_per_second / reached, 0.0, adds_gpus=True)
    elif here.gpus == knee.gpus == knee.most_gpus and here.nodes > 1:
        # all that are there are worth it: as many machines again, on the same network
        rate = float(samples_per_second(replace(table, nodes=table.nodes * 2))[0])
        yield Remedy("twice as many machines", rate, 0.0, adds_gpus=True)


def _remedies_anywhere(scenario: PlatformScenario, here: Placement) -> Iterator[Remedy]:
    """On hardware that is known only by what was measured on it, where parts have no name; whether they help or not."""
    table = scenario.at([here])
    today = _rate(table)
    for what, changed in _changes(scenario, table, here):
        rate = _rate(changed)
        yield Remedy(what, rate, rate / today)


def _rate(table: StepTable) -> float:
    return float(samples_per_second(table)[0])


def _changes(
    scenario: PlatformScenario, table: StepTable, here: Placement
) -> Iterator[tuple[str, StepTable]]:
    yield "GPUs twice as fast", table.doubled("gpu")
    if here.gpus > 1:
        yield from _cheaper_exchange(scenario, table)
    batch = scenario.workload.batch_per_gpu
    for factor in BATCH_FACTORS:
        if scenario.with_batch(batch * factor).fits(here.gpus):
            larger = replace(table, batch_per_gpu=table.batch_per_gpu * factor)
            yield f"{factor} × the batch ({batch * factor} a GPU)", larger
            break
    if np.isfinite(table.storage_bytes_per_second[0]):
        yield "storage twice as fast", table.doubled("storage")


def _cheaper_exchange(
    scenario: PlatformScenario, table: StepTable
) -> Iterator[tuple[str, StepTable]]:
    if table.sent_share == 1:
        yield "gradients sent as 16-bit numbers", replace(table, sent_share=table.sent_share / 2)
    if scenario.strategy.refusal(ExchangeOptions(accumulate=ACCUMULATED_STEPS)) is None:
        seldom = replace(table, accumulate=table.accumulate * ACCUMULATED_STEPS)
        yield f"gradients exchanged every {ACCUMULATED_STEPS} steps (accumulation)", seldom
    if table.nodes[0] > 1:
        yield "a network twice as fast", table.doubled("network")
    if table.gpus_per_node[0] > 1:
        yield "links inside the machine twice as fast", table.doubled("pcie")


def proposals(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """All but other and more GPUs, whether it helps or not."""
    if scenario.fits(here.gpus):
        yield from _bigger_batch(scenario, here)
    else:
        yield from _smaller_batch(scenario, here)
    if here.gpus > 1:
        for proposed in scenario.strategy.remedies:
            yield from proposed(scenario, here)
        if scenario.cluster is not None:
            yield from _other_links(scenario, scenario.cluster, here)
    yield from _faster_inputs(scenario, here)
    yield from _other_precisions(scenario, here)


def _bigger_batch(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    for factor in BATCH_FACTORS:
        batch = factor * scenario.workload.batch_per_gpu
        larger = scenario.with_batch(batch)
        if larger.fits(here.gpus):
            yield Proposal(
                f"{factor} × the batch ({batch} a GPU)",
                larger,
                f"an update sees {factor} × the samples: learning rate and accuracy may need care",
                larger.memory_bytes(here.gpus),
            )
            return


def _smaller_batch(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """The largest that fits."""
    batch = scenario.largest_batch(here.gpus)
    if batch:
        smaller = scenario.with_batch(batch)
        yield Proposal(
            f"a batch of {batch} a GPU",
            smaller,
            "an update sees fewer samples; accumulation makes up for it",
            smaller.memory_bytes(here.gpus),
        )


def _other_links(
    scenario: PlatformScenario, cluster: Cluster, here: Placement
) -> Iterator[Proposal]:
    """Between the machines, and inside."""
    network = network_of(cluster)
    if here.nodes > 1 and network is not None:
        for what, other, caveat in _other_networks(network):
            changed = cluster.model_copy(update={"network": other})
            yield Proposal(what, scenario.on(changed), caveat)
    if here.gpus_per_node > 1:
        yield from _best_topology(scenario, cluster, here)


def _other_networks(network: Network) -> Iterator[tuple[str, Network, str]]:
    current = links().get(network.link) if network.link else None
    rdma = (network.protocol or (current.protocol if current else "tcp")) == "rdma"
    capped = network.per_flow is not None and not rdma
    if capped:
        flows = network.flows * _MORE_FLOWS
        many = network.model_copy(update={"flows": flows})
        yield f"{flows} TCP flows between two machines", many, "NCCL_NSOCKS_PERTHREAD"
    port = current.raw_bytes_per_second if current else network.rate or 0.0
    family = current.id.split("-")[0] if current else "roce" if rdma else "ethernet"
    faster = _next_faster(family, port)
    if faster is None:
        what = "a network twice as fast"
        update: dict[str, object] = {"rate": 2 * port, "link": None}
        update["protocol"] = "rdma" if rdma else "tcp"
    else:
        what = f"{faster.id} ({units.format_bit_rate(faster.raw_bytes_per_second)}) as network"
        update = {"link": faster.id, "rate": None}
    yield what, network.model_copy(update=update), ""
    if not rdma and not capped:  # clouds that cap flows let nobody choose the protocol
        # what was given as latency is that of TCP
        over = network.model_copy(update={"protocol": "rdma", "latency": None})
        yield "RDMA (RoCE) over the same network", over, "cards and switches must offer it"


def _next_faster(family: str, bytes_per_second: float) -> Link | None:
    faster = (
        link
        for link in links()
        if link.id.split("-")[0] == family and link.raw_bytes_per_second > 1.01 * bytes_per_second
    )
    return min(faster, key=lambda link: link.raw_bytes_per_second, default=None)


def _best_topology(
    scenario: PlatformScenario, cluster: Cluster, here: Placement
) -> Iterator[Proposal]:
    gpu, machine = machine_of(cluster)
    found: list[Proposal] = []
    for topology in topologies_of(gpu):
        if topology == machine.topology:
            continue
        described = machine.model_copy(update={"topology": topology})
        # a named machine brings its network cards, a described one needs them said
        update = {"machine": described, "network": network_of(cluster)}
        try:
            other = scenario.on(cluster.model_copy(update=update))
        except UserMistake:
            continue  # so many can't be laid out so
        found.append(Proposal(f"{topology} machines of the same GPUs", other))
    if found:
        yield max(found, key=lambda proposal: proposal.rate(here))


def _faster_inputs(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """Each alone: where both are too slow, the other one limits what it gains."""
    yield from _faster_storage(scenario, here)
    yield from _more_workers(scenario, here)


def _faster_storage(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    rate = scenario.platform.storage_bytes_per_second
    if rate is None:
        return
    endless = replace(scenario, platform=replace(scenario.platform, storage_bytes_per_second=None))
    table = endless.at([here])
    needed = float(samples_per_second(table)[0]) * table.traffic.storage_bytes_per_sample
    if needed > rate:
        yield Proposal(
            f"storage that reads {units.format_byte_rate(needed)}",
            endless,
            "or the data set kept in the machines' memory",
        )


def _more_workers(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    table = scenario.at([here])
    preprocess = table.traffic.preprocess_seconds
    if preprocess == 0 or scenario.workload.dataset is None:
        return
    had = float(table.input_workers[0])
    freed = replace(table, input_workers=table.input_workers * math.inf)
    each = float(samples_per_second(freed)[0]) / here.gpus
    needed = math.ceil(each * preprocess)
    if needed <= had:
        return
    cores = scenario.platform.cores
    enough = cores is None or needed * here.gpus_per_node <= cores
    dataset = scenario.workload.dataset.model_copy(update={"input_workers": needed})
    workload = scenario.workload.model_copy(update={"dataset": dataset})
    platform = scenario.platform if enough else replace(scenario.platform, cores=None)
    more = f"{needed} input workers a GPU"
    yield Proposal(
        more if enough else f"{more}, on machines of {needed * here.gpus_per_node} free cores",
        replace(scenario, workload=workload, platform=platform),
        "or samples prepared once and stored so, or prepared on the GPU",
    )


def _other_precisions(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """On a described GPU; whether it helps or not. The exchange stays as large as it is."""
    gpu, today = scenario.gpu, scenario.precision
    if gpu is None:
        return
    # elsewhere it takes more than this setting
    if today == "fp32" and gpu.vendor == "NVIDIA" and gpu.tf32_tflops is not None:
        yield Proposal(
            "tf32 instead of fp32",
            scenario.with_precision("tf32"),
            "torch.set_float32_matmul_precision('high'); products are rounded, seldom harmful",
        )
    half = faster_half(gpu)
    if computed_in(today, gpu) not in ("bf16", "fp16") and today != half:
        other = scenario.with_precision(half)
        scaling = "needs loss scaling (GradScaler); " if half == "fp16" else ""
        exchanged = "gradients are exchanged in fp32 as before; " if here.gpus > 1 else ""
        yield Proposal(
            f"{half} training (mixed precision, autocast)",
            other,
            f"{exchanged}{scaling}compare the loss",
            other.memory_bytes(here.gpus),
        )
