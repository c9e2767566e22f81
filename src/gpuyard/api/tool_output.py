"""Is my number normal? Judges what nccl-tests and other tools printed."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import read_cluster
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import UserMistake
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.measure.tool_output.detect import read_tool_output
from gpuyard.measure.tool_output.judge import judge_output
from gpuyard.measure.tool_output.readings import ToolOutput
from gpuyard.report.answers.tool_output import tool_output_answer
from gpuyard.units import parse_rate

if TYPE_CHECKING:
    from gpuyard.specs import Cluster


def judge_tool_output(
    file: str | Path,
    *,
    on: "str | Path | Cluster | None" = None,
    gpus: int | None = None,
    link: str | float | None = None,
) -> Result[Row]:
    """Judge the output of nccl-tests and other tools against the machine's model; `-` is standard input.

    `on` is the machine or cluster, by default the one that the file names; `gpus` is the number of ranks, if the file
    does not say it; `link` is the nominal rate of one network port.
    """
    output = read_tool_output(Path(file))
    cluster = read_cluster(on) if on is not None else _find_machine(output)
    judgments = judge_output(
        output, cluster, gpus=gpus, link_bytes_per_second=parse_rate(link) if link else None
    )
    answer = tool_output_answer(output, cluster, judgments)
    return Result(answer, wrap(answer.document["rows"]))


def _find_machine(output: ToolOutput) -> "Cluster | None":
    """Return the machine of the GPUs that the file names."""
    names = [
        (r.gpu_name, r.ranks or 0, r.nodes or 1) for r in output.collectives if not r.separate_ranks
    ]
    names += [(t.gpu_names[0], len(t.gpu_names), 1) for t in output.tables if t.gpu_names]
    for name, count, nodes in names:
        gpu = find_catalog_gpu(name) if name else None
        if gpu is None or not count:
            continue
        if nodes > 1:
            raise UserMistake(
                f"the file names {count} × {gpu.name} on {nodes} nodes, but no network: add it to "
                f"--on, e.g. {nodes}x{count // nodes}x{gpu.id}@8xndr for eight InfiniBand ports in "
                "each node, or @1x100G for one port of 100 Gbit/s"
            )
        return read_cluster(f"{count}x{gpu.id}")
    return None
