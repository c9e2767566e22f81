"""Judges the bus bandwidth of collectives against the machine's model, and names faults that leave a slow one."""

from collections.abc import Iterable, Iterator
from math import log

from gpuyard.errors import UserMistake, quote
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.measure.collectives.expected import bus_factor
from gpuyard.measure.record import Cause
from gpuyard.measure.tool_output.expected_collectives import Fault, list_faults, predict_rates
from gpuyard.measure.tool_output.judgment import MAX_JUDGED_SPAN, Judgment, ReadingVerdict
from gpuyard.measure.tool_output.readings import CollectiveReading, SizedRate
from gpuyard.specs import Cluster
from gpuyard.units import format_byte_rate, format_bytes

MIN_JUDGED_BYTES = 8 << 20  # smaller messages show latency
_EXPLAINED_RATIO = 1.4  # a fault explains a rate that is within this factor of its own


def judge_collective(
    reading: CollectiveReading, cluster: Cluster | None, gpus: int | None
) -> Iterator[Judgment]:
    """Yield the verdict on every large message, or on the largest one."""
    ranks = gpus or reading.ranks
    name = reading.operation.replace("_", "-")
    if reading.separate_ranks:
        alone = Cause(
            name="no-mpi",
            why=f"all {reading.ranks} processes are rank 0: each measured itself alone",
            next_step="build nccl-tests with MPI=1, and start it with mpirun or srun --mpi=pmix",
        )
        yield Judgment(name, "", "wrong", None, causes=(alone,))
        return
    if ranks is None:
        raise UserMistake("the file does not say how many ranks took part: add --gpus N")
    if ranks == 1:
        raise UserMistake(
            "one rank took part, so nothing was exchanged: measure two GPUs or more, e.g. with "
            "all_reduce_perf -b 8M -e 8G -f 2 -g 2"
        )
    if cluster is None:
        why = "the file does not say on which machine it was measured"
        if reading.gpu_name is not None:
            why = f"GPU {quote(reading.gpu_name)} is not in the catalog (gpuyard catalog gpus)"
        raise UserMistake(f"{why}: add --on, e.g. --on 8xh100 or --on 4xdgx-h100")
    per_node = resolve_machine(cluster)[1].gpus
    nodes = reading.nodes or max(1, -(-ranks // per_node))
    series = f"{name} over {ranks} GPUs" + (f" on {nodes} nodes" if nodes > 1 else "")
    judged = [row for row in reading.rows if row.bytes >= MIN_JUDGED_BYTES] or [reading.rows[-1]]
    rates = [_find_bus_rate(row, reading, ranks) for row in judged]
    expected = predict_rates(
        cluster, ranks, nodes, reading.operation, [row.bytes for row in judged]
    )
    wrong = [row for row in judged if row.wrong]
    for row, rate, mean, low, high in zip(
        judged, rates, expected.expected, expected.low, expected.high, strict=True
    ):
        verdict: ReadingVerdict = "slow" if rate < low else "fast" if rate > high else "normal"
        causes: tuple[Cause, ...] = ()
        reason = _explain_no_verdict(row, rate, reading, low, high)
        if row.wrong:
            verdict = "wrong"
        elif reason:
            verdict = "not judged"
        elif verdict == "slow" and row is judged[-1] and not wrong:
            faults = list_faults(cluster, ranks, nodes, reading.operation, row.bytes)
            causes = tuple(_explain(rate, faults))
        yield Judgment(
            series,
            format_bytes(row.bytes),
            verdict,
            rate,
            mean,
            low,
            high,
            cluster.name,
            causes,
            "" if row.wrong else reason,
            row.bytes,
        )


def _explain_no_verdict(
    row: SizedRate, rate: float, reading: CollectiveReading, low: float, high: float
) -> str:
    """Say why a rate cannot be judged; empty if it can."""
    if row.bytes < MIN_JUDGED_BYTES:
        return f"messages below {format_bytes(MIN_JUDGED_BYTES)} show the latency, not the rate"
    if reading.uses_mpi:
        return (
            "no published rates of MPI collectives are known; the expected ones are those of NCCL"
        )
    if high / low > MAX_JUDGED_SPAN and low <= rate <= high:
        return f"published machines of this kind span {format_byte_rate(low)} to {format_byte_rate(high)}"
    return ""


def _find_bus_rate(row: SizedRate, reading: CollectiveReading, ranks: int) -> float:
    if row.bus_bytes_per_second is not None:
        return row.bus_bytes_per_second
    return row.bytes / row.seconds * bus_factor(reading.operation, ranks)


def _explain(rate: float, faults: Iterable[Fault]) -> Iterator[Cause]:
    """Yield the faults whose rate is near the measured one, the nearest first."""
    near = [
        fault
        for fault in faults
        if rate > 0 and abs(log(rate / fault.bytes_per_second)) < log(_EXPLAINED_RATIO)
    ]
    for fault in sorted(near, key=lambda fault: abs(log(rate / fault.bytes_per_second))):
        would = format_byte_rate(fault.bytes_per_second)
        yield fault.cause.model_copy(update={"why": f"{fault.cause.why} ({would} expected then)"})
    yield Cause(
        name="unknown",
        why="a fault that gpuyard does not know may leave this rate, too"
        if near
        else "no known fault leaves this rate",
        next_step="run it again with NCCL_DEBUG=INFO, and pass lspci -vv and nvidia-smi -q to gpuyard "
        "bench collectives --from; then halve the nodes until the slow one is found",
    )
