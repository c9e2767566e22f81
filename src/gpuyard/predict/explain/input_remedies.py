"""What could be changed about the way of samples to the GPUs: storage, and CPU cores that prepare them."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gpuyard import units
from gpuyard.predict.explain.change import Change
from gpuyard.predict.placement import Placement
from gpuyard.predict.setting import Setting, throughput


def faster_inputs(setting: Setting, here: Placement) -> Iterator[Change]:
    """Each alone: where both are too slow, the other one limits what it gains."""
    yield from _faster_storage(setting, here)
    yield from _more_workers(setting, here)


def _faster_storage(setting: Setting, here: Placement) -> Iterator[Change]:
    rate = setting.platform.storage_bytes_per_second
    if rate is None:
        return
    endless = replace(setting, platform=replace(setting.platform, storage_bytes_per_second=None))
    table, traffic = endless.configurations([here])
    per_second = float(throughput(table, traffic)[0])
    needed = per_second * traffic.storage_bytes_per_sample
    if needed > rate:
        yield Change(
            f"storage that reads {units.format_byte_rate(needed)}",
            endless.samples_per_second,
            "or the data set kept in the machines' memory",
        )


def _more_workers(setting: Setting, here: Placement) -> Iterator[Change]:
    table, traffic = setting.configurations([here])
    if traffic.preprocess_seconds == 0:
        return
    had = float(table.input_workers[0])
    freed = replace(table, input_workers=table.input_workers * math.inf)
    each = float(throughput(freed, traffic)[0]) / here.gpus
    needed = math.ceil(each * traffic.preprocess_seconds)
    if needed <= had or setting.workload.dataset is None:
        return
    cores = setting.platform.cores
    enough = cores is None or needed * here.gpus_per_node <= cores
    dataset = setting.workload.dataset.model_copy(update={"input_workers": needed})
    workload = setting.workload.model_copy(update={"dataset": dataset})
    platform = setting.platform if enough else replace(setting.platform, cores=None)
    more = f"{needed} input workers a GPU"
    yield Change(
        more if enough else f"{more}, on machines of {needed * here.gpus_per_node} free cores",
        replace(setting, workload=workload, platform=platform).samples_per_second,
        "or samples prepared once and stored so, or prepared on the GPU",
    )
