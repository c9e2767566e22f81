"""Computes how the workloads of a sweep scale, compared with one worker, and describes it in words."""

from collections.abc import Sequence
from statistics import fmean

from gpuyard.draw.scaling import ScalingLine, ScalingPanel, ScalingPoint, draw_scaling_svg
from gpuyard.measure.training.records import Measurement
from gpuyard.specs import DEFAULT_STRATEGY
from gpuyard.units import format_bit_rate, format_bytes, format_effective_gpus, format_seconds

_MIN_SCALING_EFFICIENCY = 0.8  # a workload scales from this efficiency on
_MIN_PARTIAL_EFFICIENCY = 0.5  # below this, added workers did less than half of their work


def draw_scaling(measurements: Sequence[Measurement], title: str) -> str:
    """Draw how the workloads scale, as SVG."""
    return draw_scaling_svg(
        build_scaling_panels(measurements), title, _describe_basis(measurements)
    )


def build_scaling_panels(measurements: Sequence[Measurement]) -> tuple[ScalingPanel, ...]:
    """Build one panel per workload, precision, and device, in the order of the measurements."""
    panels: dict[str, list[Measurement]] = {}
    for m in measurements:
        device = f"synthetic {m.synthetic.gpu}" if m.synthetic else m.device
        names = (m.workload, m.spec.get("precision"), device)
        panels.setdefault(", ".join(filter(None, names)), []).append(m)
    return tuple(_build_panel(title, runs) for title, runs in panels.items())


def _build_panel(title: str, runs: Sequence[Measurement]) -> ScalingPanel:
    members = "workers" if all(m.place.kind == "here" for m in runs) else "nodes"
    by_label: dict[str, list[Measurement]] = {}
    for m in runs:
        by_label.setdefault(_format_label(m, m.remedy.label), []).append(m)
    lines, left_out = [], []
    for label, line_runs in by_label.items():
        plain_runs = by_label.get(_format_label(line_runs[0], "plain"), [])
        alone = _select_alone(plain_runs) or _select_alone(line_runs)
        if alone:
            lines.append(_build_line(label, line_runs, alone, members))
        else:
            left_out.append(label)
    return ScalingPanel(
        title,
        _describe_traffic(runs),
        members,
        tuple(lines),
        _describe_lines(lines),
        tuple(left_out),
    )


def _format_label(m: Measurement, remedy: str) -> str:
    strategy = "" if m.strategy == DEFAULT_STRATEGY else f"{m.strategy}, "
    rate = m.place.link_bytes_per_second
    link = "" if rate is None else f" at {format_bit_rate(rate)}"
    suffix = "" if remedy == "plain" else f" with {remedy}"
    return f"{strategy}batch {m.batch_per_worker}{link}{suffix}"


def _select_alone(runs: Sequence[Measurement]) -> list[Measurement]:
    return [m for m in runs if m.workers == 1]


def _build_line(
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
    largest = points[-1]
    effective = format_effective_gpus(largest.workers * largest.efficiency)
    if largest.workers == 1:
        sentence = f"was measured only on one of the {members}"
    else:
        verdict = _describe_choke(largest.efficiency, by_workers[largest.workers], alone)
        sentence = f"{verdict}: {largest.workers} {members} do the work of {effective}"
    return ScalingLine(label, tuple(points), sentence)


def _describe_choke(
    efficiency: float, largest: Sequence[Measurement], alone: Sequence[Measurement]
) -> str:
    if efficiency >= _MIN_SCALING_EFFICIENCY:
        return "scales"
    exchange = fmean(m.step.exposed_communication_seconds for m in largest)
    slowed = fmean(m.step.compute_seconds for m in largest) - fmean(
        m.step.compute_seconds for m in alone
    )
    host = max(0.0, slowed) + fmean(m.step.input_seconds for m in largest)
    here = largest[0].place.kind == "here"
    network = "the exchange between the workers" if here else "the network"
    waits = f"waits for {network if exchange > host else 'the host'}"
    return waits if efficiency < _MIN_PARTIAL_EFFICIENCY else f"scales in part and {waits}"


def _describe_lines(lines: Sequence[ScalingLine]) -> tuple[str, ...]:
    """Describe the lines with the lowest and the highest efficiency."""
    if len(lines) < 2:
        return tuple(line.sentence for line in lines)
    ordered = sorted(lines, key=lambda line: line.points[-1].efficiency)
    return tuple(f"{line.label} {line.sentence}" for line in (ordered[0], ordered[-1]))


def _describe_traffic(runs: Sequence[Measurement]) -> str:
    """Compare the gradient bytes of a step with the compute time of one worker."""
    gradients = max((m.all_reduce_bytes or 0 for m in runs), default=0)
    compute = [m.step.compute_seconds for m in _select_alone(runs) if m.remedy.is_default]
    if not gradients or not compute:
        return ""
    shortest, longest = format_seconds(min(compute)), format_seconds(max(compute))
    span = shortest if shortest == longest else f"{shortest} to {longest}"
    return f"{format_bytes(gradients)} of gradients against {span} of compute per step"


def _describe_basis(measurements: Sequence[Measurement]) -> str:
    """Describe the number of runs, the hardware, and the date."""
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
