"""What could be changed about a configuration, whether it helps or not: the batch, the exchange of gradients (the
strategy says what), links (the catalog names the next faster ones), the way of samples to the GPUs, the precision."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gpuyard import units
from gpuyard.catalog import Link, links
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.hardware.presets import topologies_of
from gpuyard.predict.compute import computed_in, faster_half
from gpuyard.predict.platform import network_of
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies.remedies import Proposal
from gpuyard.predict.table import Placement, samples_per_second
from gpuyard.specs import Cluster, Network

BATCH_FACTORS = (8, 4, 2)
_MORE_FLOWS = 4


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
