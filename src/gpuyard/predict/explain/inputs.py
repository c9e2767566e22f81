"""What could be changed about the way of samples to the GPUs: storage, and CPU cores that prepare them."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gpuyard import units
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies.remedies import Proposal
from gpuyard.predict.table import Placement, samples_per_second


def faster_inputs(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
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
