"""How the workloads of a sweep scale: each line against one worker alone, and what that means in words."""

from collections.abc import Sequence
from statistics import fmean

from gpuyard.draw.scaling import ScalingLine, ScalingPanel, ScalingPoint, scaling_svg
from gpuyard.measure import Measurement
from gpuyard.specs import DEFAULT_STRATEGY
from gpuyard.units import format_bit_rate, format_bytes, format_effective, format_seconds

# from the first on it scales, and below the second the added workers did less than half of their work
_SCALES, _WORTH_ADDING = 0.8, 0.5


def scaling_picture(measurements: Sequence[Measurement], title: str) -> str:
    """How they scale, as SVG."""
    return scaling_svg(scaling_panels(measurements), title, _basis(measurements))


def scaling_panels(measurements: Sequence[Measurement]) -> tuple[ScalingPanel, ...]:
    """A panel a workload and precision, in the order in which they were measured."""
    panels: dict[str, list[Measurement]] = {}
    for m in measurements:
        device = f"synthetic {m.synthetic.gpu}" if m.synthetic else m.device
        trained = (m.workload, m.spec.get("precision"), device)
        panels.setdefault(", ".join(filter(None, trained)), []).append(m)
    return tuple(_panel(title, runs) for title, runs in panels.items())


def _panel(title: str, runs: Sequence[Measurement]) -> ScalingPanel:
    members = "workers" if all(m.place.kind == "here" for m in runs) else "nodes"
    by_label: dict[str, list[Measurement]] = {}
    for m in runs:
        by_label.setdefault(_label(m, m.remedy.label), []).append(m)
    lines, left_out = [], []
    for label, own in by_label.items():
        alone = _alone(by_label.get(_label(own[0], "plain"), [])) or _alone(own)
        if alone:
            lines.append(_line(label, own, alone, members))
        else:
            left_out.append(label)
    return ScalingPanel(title, _weighs(runs), members, tuple(lines), _words(lines), tuple(left_out))


def _label(m: Measurement, remedy: str) -> str:
    strategy = "" if m.strategy == DEFAULT_STRATEGY else f"{m.strategy}, "
    rate = m.place.link_bytes_per_second
    link = "" if rate is None else f" at {format_bit_rate(rate)}"
    relieved = "" if remedy == "plain" else f" with {remedy}"
    return f"{strategy}batch {m.batch_per_worker}{link}{relieved}"


def _alone(runs: Sequence[Measurement]) -> list[Measurement]:
    return [m for m in runs if m.workers == 1]


def _line(
    label: str, runs: Sequence[Measurement], alone: Sequence[Measurement], members: str
) -> ScalingLine:
    rate_alone = fmean(m.samples_per_second for m in alone)
    by_workers: dict[int, list[Measurement]] = {}
    for m in sorted(runs, key=lambda m: m.workers):
        by_workers.setdefault(m.workers, []).append(m)
    points = []
    for workers, same in by_workers.items():
        rate = fmean(m.samples_per_second for m in same)
        points.append(ScalingPoint(workers, rate / (workers * rate_alone), rate))
    most = points[-1]
    done = most.workers * most.efficiency
    work = f"{most.workers} {members} do the work of {format_effective(done)}"
    if most.workers == 1:
        sentence = f"was measured on one of the {members} only"
    else:
        sentence = f"{_verdict(most.efficiency, by_workers[most.workers], alone)}: {work}"
    return ScalingLine(label, tuple(points), sentence)


def _verdict(
    efficiency: float, largest: Sequence[Measurement], alone: Sequence[Measurement]
) -> str:
    if efficiency >= _SCALES:
        return "scales"
    exchange = fmean(m.step.exposed_communication_seconds for m in largest)
    slowed = fmean(m.step.compute_seconds for m in largest) - fmean(
        m.step.compute_seconds for m in alone
    )
    host = max(0.0, slowed) + fmean(m.step.input_seconds for m in largest)
    here = largest[0].place.kind == "here"
    network = "the exchange between the workers" if here else "the network"
    waits = f"waits for {network if exchange > host else 'the host'}"
    return waits if efficiency < _WORTH_ADDING else f"scales in part and {waits}"


def _words(lines: Sequence[ScalingLine]) -> tuple[str, ...]:
    """Of several lines the one that gets least out of its workers, and the one that gets most."""
    if len(lines) < 2:
        return tuple(line.sentence for line in lines)
    ordered = sorted(lines, key=lambda line: line.points[-1].efficiency)
    return tuple(f"{line.label} {line.sentence}" for line in (ordered[0], ordered[-1]))


def _weighs(runs: Sequence[Measurement]) -> str:
    """What is exchanged in a step, and how long one worker computes meanwhile."""
    gradients = max((m.all_reduce_bytes or 0 for m in runs), default=0)
    compute = [m.step.compute_seconds for m in _alone(runs) if m.remedy.plain]
    if not gradients or not compute:
        return ""
    shortest, longest = format_seconds(min(compute)), format_seconds(max(compute))
    span = shortest if shortest == longest else f"{shortest} to {longest}"
    return f"{format_bytes(gradients)} of gradients against {span} of compute per step"


def _basis(measurements: Sequence[Measurement]) -> str:
    """How many runs, where, on what and when."""
    if not measurements:
        return "nothing was measured"
    runs = f"{len(measurements)} run{'s' if len(measurements) > 1 else ''}"
    in_a_lab = any(m.place.kind == "lab" for m in measurements)
    cpus = dict.fromkeys(
        f"{m.provenance.cpu_model}, {m.provenance.cores} cores" for m in measurements
    )
    dilations = sorted({m.place.dilation for m in measurements} - {1.0})
    dilated = " and ".join(f"× {dilation:g}" for dilation in dilations)
    parts = [
        f"{runs} {'in a lab ' if in_a_lab else ''}on {'; '.join(cpus)}",
        f"time dilated {dilated}" if dilated else "",
        max(m.created_at for m in measurements)[:10],
    ]
    return ", ".join(part for part in parts if part)
