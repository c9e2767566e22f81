"""Judges all readings of a file: normal or not, against what, and likely causes with the next steps."""

from collections import Counter
from dataclasses import replace

from gpuyard.measure.tool_output.judge_collectives import judge_collective
from gpuyard.measure.tool_output.judge_devices import judge_acs, judge_device
from gpuyard.measure.tool_output.judge_links import judge_table
from gpuyard.measure.tool_output.judgment import Judgment
from gpuyard.measure.tool_output.readings import ToolOutput
from gpuyard.specs import Cluster


def judge_output(
    output: ToolOutput,
    cluster: Cluster | None,
    *,
    gpus: int | None = None,
    link_bytes_per_second: float | None = None,
) -> tuple[Judgment, ...]:
    """Judge every reading of a file; `cluster` is the machine that it was measured on."""
    judgments: list[Judgment] = []
    runs: Counter[str] = Counter()
    for reading in output.collectives:
        judged = list(judge_collective(reading, cluster, gpus))
        runs[judged[0].series] += 1
        if (run := runs[judged[0].series]) > 1:
            judged = [replace(item, series=f"{item.series}, run {run}") for item in judged]
        judgments += judged
    staged = {
        (link.source, link.target, link.direction): link.bytes_per_second
        for table in output.tables
        for link in table.links
        if link.peer is False
    }
    for table in output.tables:
        judgments += judge_table(table, cluster, link_bytes_per_second, staged)
    judgments += [judge_device(health) for health in output.devices]
    if output.acs_bridges:
        judgments.append(judge_acs(output.acs_bridges))
    return tuple(judgments)
