"""What would help on hardware that is known only by what was measured on it: parts have no name there."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies.remedies import ACCUMULATED_STEPS, Remedy
from gpuyard.predict.table import Placement, StepTable, samples_per_second
from gpuyard.specs import ExchangeOptions

_BATCH_FACTORS = (8, 4, 2)


def remedies_anywhere(scenario: PlatformScenario, here: Placement) -> Iterator[Remedy]:
    """Whether they help or not."""
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
    for factor in _BATCH_FACTORS:
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
