"""Judges everything that was measured, and builds the record: a grade for each node and for the cluster."""

from collections.abc import Iterable, Sequence

from gpuyard.measure.acceptance.expected import predict_link_loss
from gpuyard.measure.acceptance.judge_inventory import judge_inventory
from gpuyard.measure.acceptance.judge_speed import judge_speeds
from gpuyard.measure.acceptance.pairs import PairVerdict, SlowPath, judge_pairs
from gpuyard.measure.acceptance.plan import AcceptancePlan
from gpuyard.measure.acceptance.records import (
    Acceptance,
    Check,
    Grade,
    NodeReport,
)
from gpuyard.measure.acceptance.state import AcceptanceState
from gpuyard.measure.collectives.verdict import BELOW
from gpuyard.measure.record import create_identity
from gpuyard.units import format_bit_rate, format_count, format_per_second, format_share

_ORDER: tuple[Grade, ...] = ("pass", "warn", "fail")


def build_acceptance(
    plan: AcceptancePlan, state: AcceptanceState, *, shared_machine: bool
) -> Acceptance:
    """Judge all phases and build the record."""
    emulated = plan.place.emulated
    checks = [
        *_judge_presence(plan, state),
        *judge_inventory(plan.promise, state.inventories, emulated=emulated),
        *judge_speeds(state.attempts, plan.promise, retried=len(state.attempts) > 1),
    ]
    answered = [name for name in plan.nodes if name in state.inventories]
    expected = plan.promise.link_bytes_per_second
    links: dict[str, float] = {}
    if state.rates:
        pairs = judge_pairs(state.rates, expected, len(answered))
        links = {answered[node]: rate for node, rate in pairs.rate_by_node.items()}
        checks += _judge_links(plan, pairs, answered, shared_machine=shared_machine)
    checks += state.bisected
    faults = any(check.grade == "fail" for check in checks)
    checks += _judge_whole(state, explained=faults, shared_machine=shared_machine)
    checks += _judge_training(state, explained=faults, shared_machine=shared_machine)
    return Acceptance(
        **create_identity(plan.key),
        host=plan.testbed,
        cluster=plan.cluster.name,
        place=plan.place.record(sum(plan.place.ranks_by_node)),
        accepted=not any(check.grade == "fail" for check in checks),
        nodes=tuple(_report_node(name, checks, state, links.get(name)) for name in plan.nodes),
        findings=tuple(check for check in checks if check.node is None),
        pairs=state.rates,
        expected_link_bytes_per_second=expected,
        whole=state.whole,
        training=state.training,
        price=plan.price,
        left_out=state.left_out,
        notes=(*state.notes, *_list_notes(plan, state, shared_machine=shared_machine)),
        seconds=state.elapsed_seconds,
    )  # fmt: skip


def _report_node(
    name: str, checks: Sequence[Check], state: AcceptanceState, link_bytes_per_second: float | None
) -> NodeReport:
    findings = tuple(check for check in checks if check.node == name)
    speeds = [attempt.speeds[name] for attempt in state.attempts if name in attempt.speeds]
    return NodeReport(
        name=name,
        grade=find_worst(check.grade for check in findings),
        findings=findings,
        inventory=state.inventories.get(name),
        gemm_flops_per_second=max((s.gemm_flops_per_second for s in speeds), default=None),
        memory_bytes_per_second=max((s.memory_bytes_per_second for s in speeds), default=None),
        storage_read_bytes_per_second=max(
            (r for s in speeds if (r := s.storage_read_bytes_per_second) is not None), default=None
        ),
        link_bytes_per_second=link_bytes_per_second,
    )


def find_worst(grades: Iterable[Grade]) -> Grade:
    """Return the worst grade; nothing found is a pass."""
    return max(grades, key=_ORDER.index, default="pass")


def _judge_presence(plan: AcceptancePlan, state: AcceptanceState) -> Iterable[Check]:
    for name, reason in state.unreachable.items():
        yield Check(
            phase="inventory",
            node=name,
            subject="node",
            grade="fail",
            text=f"does not answer: {reason.strip().splitlines()[-1].strip()}",
            lost_share=1 / plan.cluster.nodes,
            next_step="check its power, network, and ssh, and that gpuyard is at the same path",
        )
    for phase, reason in state.failures.items():
        yield Check(
            phase=phase,
            subject=phase,
            grade="fail",
            text=f"it could not be measured: {reason.splitlines()[0]}",
            next_step="repair the node that it names, or leave it out, and run the same command again",
        )
    if len(plan.nodes) < plan.cluster.nodes:
        yield Check(
            phase="inventory",
            subject="nodes",
            grade="fail",
            text=f"{len(plan.nodes)} of {plan.cluster.nodes} nodes take part",
            next_step="name all nodes, or describe the cluster with fewer",
        )


def _judge_links(
    plan: AcceptancePlan, pairs: PairVerdict, names: Sequence[str], *, shared_machine: bool
) -> Iterable[Check]:
    for slow in pairs.nodes:
        ratio = slow.bytes_per_second / pairs.reference
        yield Check(
            phase="pairs",
            node=names[slow.node],
            subject="link",
            grade="fail",
            text=f"{slow.direction} at {format_bit_rate(slow.bytes_per_second)} in all "
            f"{format_count(slow.pairs, 'pair')}, {format_share(ratio)} of the others",
            ratio=ratio,
            lost_share=predict_link_loss(plan.promise, plan.workload, min(1.0, ratio)),
            next_step="check the cable, port, and negotiated speed of its link (ethtool, ibstat)",
        )
    for path in pairs.paths:
        ratio = path.bytes_per_second / pairs.reference
        yield Check(
            phase="pairs",
            subject="path",
            grade="fail",
            text=f"{_name_path(path, names)}: {format_bit_rate(path.bytes_per_second)}, "
            f"{format_share(ratio)} of other pairs; the nodes are fast with others",
            ratio=ratio,
            lost_share=predict_link_loss(plan.promise, plan.workload, min(1.0, ratio)),
            next_step="check the switches and uplinks between them",
        )
    expected = plan.promise.link_bytes_per_second
    if expected is not None and pairs.reference < BELOW * expected:
        ratio = pairs.reference / expected
        nominal = plan.place.ring_link_bytes_per_second(len(names))
        # if the links of a lab are fast enough, this machine cannot emulate them
        weak_emulation = shared_machine and (nominal is None or nominal >= expected)
        yield Check(
            phase="pairs",
            subject="network",
            grade="warn" if weak_emulation else "fail",
            text=f"even the fast pairs reach {format_bit_rate(pairs.reference)}, {format_share(ratio)} of "
            f"the {format_bit_rate(expected)} that the spec's network should carry",
            ratio=ratio,
            lost_share=predict_link_loss(plan.promise, plan.workload, ratio),
            next_step="use fewer nodes or more dilation in the lab"
            if weak_emulation
            else "check the interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), the MTU, and the negotiated speed",
        )


def _name_path(path: SlowPath, names: Sequence[str]) -> str:
    if path.halves is None:
        ((a, b),) = path.pairs
        return f"between {names[a]} and {names[b]}"
    low, high = path.halves
    return f"between {', '.join(names[n] for n in low)} and {', '.join(names[n] for n in high)}"


def _judge_whole(
    state: AcceptanceState, *, explained: bool, shared_machine: bool
) -> Iterable[Check]:
    whole = state.whole
    if whole is None or whole.ratio >= BELOW or state.bisected:
        return
    yield Check(
        phase="all",
        subject="all-reduce",
        grade="warn" if explained or shared_machine else "fail",
        text=f"it reaches {format_share(whole.ratio)} of its prediction"
        + ("; the faults above may be the reason" if explained else ""),
        ratio=whole.ratio,
        next_step="repair these nodes, and run it again"
        if explained
        else f"gpuyard results show {whole.bench} lists likely causes",
    )


def _judge_training(
    state: AcceptanceState, *, explained: bool, shared_machine: bool
) -> Iterable[Check]:
    step = state.training
    if step is None:
        return
    ratio = step.samples_per_second / step.predicted
    if step.samples_per_second >= step.low or ratio >= BELOW:
        return
    yield Check(
        phase="training",
        subject="training step",
        grade="warn" if explained or shared_machine else "fail",
        text=f"{format_per_second(step.samples_per_second)} samples/s, {format_share(ratio)} of the predicted "
        f"{format_per_second(step.predicted)}"
        + ("; the faults above may be the reason" if explained else ""),
        ratio=ratio,
        lost_share=0.0 if explained else max(0.0, 1 - ratio),
        next_step="repair these nodes, and run it again"
        if explained
        else "run `gpuyard predict --why` to see what limits the step",
    )


def _list_notes(
    plan: AcceptancePlan, state: AcceptanceState, *, shared_machine: bool
) -> Iterable[str]:
    inventories = state.inventories.values()
    if plan.place.emulated and not any(inventory.gpus for inventory in inventories):
        yield "No node reports a GPU, so GPUs were not judged, and the training step emulated one."
    elif not any(inventory.torch_gpus for inventory in inventories):
        yield "PyTorch cannot use a GPU on any node, so GPUs were counted, but not timed."
    if shared_machine:
        yield (
            "The nodes share one machine: they were measured in turn, by the CPU time that they got, and their "
            "storage was not compared."
        )
