"""The answer to `gpuyard predict`: a table of predictions, and the explanation of one of them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuyard import units
from gpuyard.catalog import Gpu
from gpuyard.catalog.hardware import find_end_of_life
from gpuyard.errors import UserMistake
from gpuyard.predictor import ClusterPrediction, Prediction, Remedy
from gpuyard.predictor.constants import CALIBRATED
from gpuyard.report.answer import (
    Answer,
    Column,
    Drawing,
    Part,
    Section,
    Sentence,
    StyledText,
    Table,
    Text,
    Tone,
)

if TYPE_CHECKING:
    from gpuyard.predictor.calibration.document import Calibration
    from gpuyard.predictor.explain.next_run import NextRun
    from gpuyard.predictor.explain.why import Why
    from gpuyard.predictor.power import PowerCap

_COLUMNS = (
    "GPUs",
    Column("nodes", 4),
    Column("batch/GPU", 2),
    "samples/s",
    Column("90% interval", 1),
    "efficiency",
    Column("compute", 6),
    Column("exposed comm.", 5),
    Column("input", 8),
    Column("straggling", 7),
    "choke",
)
_BEFORE = Column("before", 1)
_LANES: dict[str, Tone] = {
    "compute": "good",
    "window": "quiet",
    "exchange": "accent",
    "wait": "bad",
    "": "quiet",
}


def predict_answer(
    result: ClusterPrediction,
    how: Sequence[str],
    *,
    calibration: "Calibration | None" = None,
    why: "Why | None" = None,
    notes: Sequence[str] = (),
    gpu: Gpu | None = None,
    cluster_note: str = "",
    advice: str = "",
    next_run: "NextRun | None" = None,
    power_cap: "PowerCap | None" = None,
    cluster: Sequence[Prediction],
) -> Answer:
    """Build the answer.

    `cluster` has predictions up to the whole cluster for the first line.
    `how` lists the strategy, exchange options, and other jobs; `notes` describe the wiring of the machines.
    `cluster_note` says what a short form of the cluster left open. `advice` is one sentence for an answer without `why`;
    `next_run` is shown with `why` only.
    """
    title = f"{result.workload} on {result.cluster} ({', '.join([result.precision, *how])})"
    more = [_BEFORE] if any(p.before for p in result.predictions) else []
    columns: list[Column | str] = [*_COLUMNS[:5], *more, *_COLUMNS[5:]]
    table = Table(title, columns, [_format_row(p) for p in result.predictions])
    sentences = [note for note in (cluster_note, result.precision_note) if note]
    sentences += [
        f"Single-GPU speed: {result.single_gpu_speed}.",
        *_describe_constants(result, calibration),
    ]
    if result.framework_note:
        before = more and not result.points
        any_stack = " 'before' is the interval of any stack." if before else ""
        sentences.append(result.framework_note + any_stack)
    sentences += [note for note in (result.gradient_note, result.peer_note) if note]
    if result.memory_use_note:
        sentences.append(result.memory_use_note)
    if result.points:
        single = result.points == 1
        figures = "1 measured figure" if single else f"{result.points} measured figures"
        sentences.append(
            f"Several GPUs: predicted with {figures} of several GPUs; 'before' is the interval without "
            f"{'it' if single else 'them'}."
        )
        if result.point_sources != ("the workload",):
            sentences.append(f"Measured: {'; '.join(result.point_sources)}.")
    if next_run is not None:
        sentences.append(next_run.sentence)
    sentences += _describe_capped(result, power_cap)
    batches = {p.batch_per_gpu for p in result.predictions}
    if len(batches) > 1:
        sentences.append(_describe_saturation(result, batches))
    if advice:
        sentences.append(advice)
    wiring = [f"Wiring: {note}." for note in notes]
    parts: list[Part] = [
        build_headline(result, cluster),
        table,
        *map(Sentence, [*sentences, *wiring]),
    ]
    if result.evidence_note:
        parts.insert(1, Sentence(result.evidence_note, "caution"))
    cautions = (result.base_note, result.points_note)
    parts += [Sentence(note, "caution") for note in cautions if note]
    parts += _build_moves(result)
    unsupported = find_end_of_life(gpu) if gpu else None
    if unsupported is not None:
        parts.append(Sentence(unsupported.sentence, "caution"))
    document = result.as_json() | {
        "calibration": _calibration_json(result, calibration),
        "end_of_life": unsupported.model_dump(mode="json") if unsupported else None,
    }
    document |= _add_energy(document["predictions"], power_cap)
    if cluster_note:
        document["cluster_note"] = cluster_note
    if why is not None:
        parts.append(_build_explanation(why, title))
        document |= {"next_run": asdict(next_run) if next_run else None, "why": why.as_json()}
    return Answer(parts, document, title=title, verb="predict", rows="predictions")


def _describe_capped(result: ClusterPrediction, cap: "PowerCap | None") -> list[str]:
    if cap is None:
        return []
    most = max(result.predictions, key=lambda p: p.gpus)
    return [describe_power_cap(cap, most.samples_per_second / most.gpus, "samples")]


def _add_energy(rows: list[dict[str, Any]], cap: "PowerCap | None") -> dict[str, Any]:
    """Add samples per joule to each row, and return the cap's own keys."""
    if cap is None:
        return {}
    for row in rows:
        row["samples_per_joule"] = row["samples_per_second"] / row["gpus"] / cap.drawn_watts
    return {"power_cap": cap.as_json()}


def describe_power_cap(cap: "PowerCap", rate_per_gpu: float, noun: str) -> str:
    """Return what a power cap costs in speed and gains in energy; `rate_per_gpu` is already capped."""
    if cap.watts >= cap.rated_watts:
        return f"A power cap of {cap.rated_watts:g} W or more has no effect: it is the GPU's rated power."
    per_joule = rate_per_gpu / cap.drawn_watts
    gain = cap.uncapped_watts / cap.drawn_watts * cap.speed - 1
    return (
        f"At {cap.watts:g} W of {cap.rated_watts:g} W, each GPU computes {1 - cap.speed:.0%} slower "
        f"({1 - cap.high:.0%} to {1 - cap.low:.0%}); {units.format_number(per_joule)} {noun} per joule of the GPU, "
        f"about {abs(gain):.0%} {'more' if gain >= 0 else 'fewer'} than at full power ({cap.basis})."
    )


_LIMITS = {
    "gpu": "limited by compute",
    "network": "limited by the network",
    "pcie": "limited by the links inside the machine",
    "storage": "limited by storage",
    "host": "limited by the host's CPUs",
    "none": "no single choke",
}
_MIN_ADDED_GPU = 0.5  # share of one GPU that an added GPU must bring to be called helpful
_MIN_RATIO = 1.05  # smaller differences between numbers of GPUs are not worth a sentence


def build_headline(result: ClusterPrediction, cluster: Sequence[Prediction]) -> Sentence:
    """Answer in one sentence: the speed of the most GPUs, the choke, and the best number of GPUs in the cluster.

    `cluster` has predictions up to the whole cluster. If a batch does not fit, the sentence says only this.
    """
    if result.memory_note:
        return Sentence(f"Out of memory. {result.memory_note}", "bad")
    largest = max(result.predictions, key=lambda p: p.gpus)
    gpus = units.format_count(largest.gpus, "GPU")
    efficient = f", {units.format_share(largest.scaling_efficiency)} efficient"
    others = [p for p in cluster if p.gpus != largest.gpus and p.fits is not False]
    return Sentence(
        f"{gpus}: {_format_speed(largest)}{efficient if largest.gpus > 1 else ''}; "
        f"{_LIMITS[largest.choke]}. {_compare_counts(largest, others)}".rstrip(),
        "strong",
    )


def _format_speed(p: Prediction) -> str:
    return f"{units.format_number(float(f'{p.samples_per_second:.3g}'))} samples/s"


def _compare_counts(largest: Prediction, others: Sequence[Prediction]) -> str:
    """Name a faster number of GPUs in the cluster, or judge the last GPUs that were added."""
    if not others:
        return ""
    fastest = max(others, key=lambda p: p.samples_per_second)
    ratio = fastest.samples_per_second / largest.samples_per_second
    if ratio >= _MIN_RATIO:
        times = units.format_number(float(f"{ratio:.2g}"))
        return f"{units.format_count(fastest.gpus, 'GPU')} {'is' if fastest.gpus == 1 else 'are'} {times} × as fast."
    most = max(others, key=lambda p: p.gpus)
    if most.gpus > largest.gpus:
        slower = most.samples_per_second < largest.samples_per_second
        return f"More are {'slower' if slower else 'hardly faster'}: {most.gpus} reach {_format_speed(most)}."
    added = (largest.samples_per_second - most.samples_per_second) / (largest.gpus - most.gpus)
    share = added * largest.gpus * largest.scaling_efficiency / largest.samples_per_second
    if share >= _MIN_ADDED_GPU:
        return f"Adding GPUs helps up to {largest.gpus}, the whole cluster."
    if share <= 0:
        return f"{most.gpus} are as fast."
    return f"The last {largest.gpus - most.gpus} help little: each brings {units.format_share(share)} of a GPU."


def choke_cell(p: Prediction) -> StyledText:
    """Return the choke, highlighted if more GPUs would not help."""
    return p.choke if p.choke in ("gpu", "none") else Text(p.choke, "caution")


def choke_if_it_fits(p: Prediction) -> StyledText:
    """Return the choke, marked if the configuration does not fit into memory."""
    return choke_cell(p) if p.fits is not False else Text(f"{p.choke} (does not fit)", "bad")


def why_svg(why: "Why", title: str) -> str:
    """Draw the timeline of the explained step."""
    from gpuyard.draw.timeline import draw_timeline_svg

    configuration = f"{why.gpus} × a batch of {why.batch_per_gpu}"
    return draw_timeline_svg(why.timeline, f"One step of {title}, {configuration}")


def _describe_saturation(result: ClusterPrediction, batches: set[int]) -> str:
    smallest = result.saturating_batch or 1
    saturating = [batch for batch in sorted(batches) if batch >= smallest]
    shown = f"here, from {saturating[0]} up" if saturating else "no batch here is that large"
    return f"A GPU is saturated (twice the batch gains less than 10%) at a batch of {smallest:,} or more: {shown}."


_LARGE_MOVES = ("parameters out", "gradients back")


def _build_moves(result: ClusterPrediction) -> list[Part]:
    """Show the transfers over the first GPU's link if one process serves all GPUs.

    For a sweep over batches, a drawing compares the bytes and the time of an epoch.
    """
    predictions = [p for p in result.predictions if len(p.moves) > 1]
    if not predictions:
        return []
    names = [move.name for move in predictions[0].moves]
    rows: list[list[StyledText]] = [
        [
            str(p.gpus),
            str(p.batch_per_gpu),
            *(units.format_bytes(move.size_bytes) for move in p.moves),
            units.format_bytes(sum(move.size_bytes for move in p.moves)),
            units.format_bytes(p.epoch_bytes) if p.epoch_bytes else "",
        ]
        for p in predictions
    ]
    columns: list[Column | str] = [
        "GPUs",
        "batch/GPU",
        *(Column(name, 2 if name in _LARGE_MOVES else 3) for name in names),
        "per step",
        "per epoch",
    ]
    parts: list[Part] = [Table("Transfers over the first GPU's link, in this order", columns, rows)]
    sweep = select_sweep(result)
    if sweep:
        from gpuyard.draw.bytes_moved import draw_bytes_moved_lines

        drawing = Drawing(
            sweep_svg(result),
            lambda width: [Text(line) for line in draw_bytes_moved_lines(sweep, width)],
            "An epoch by its total batch: bytes moved, and time.",
        )
        parts.append(drawing)
    return parts


def sweep_svg(result: ClusterPrediction) -> str:
    """Draw the time of an epoch against the bytes that it moves, with one dot per batch."""
    from gpuyard.draw.bytes_moved import draw_bytes_moved_svg

    sweep = select_sweep(result)
    if not sweep:
        raise UserMistake(
            "--svg draws the explanation of --why, or a sweep over several --batch values of a workload with a "
            "dataset: add --why"
        )
    title = f"{result.workload} on {result.cluster}: an epoch by its total batch"
    return draw_bytes_moved_svg(sweep, title)


def select_sweep(result: ClusterPrediction) -> list[Prediction]:
    """Select the predictions with the most GPUs if they cover several batches with known epochs."""
    gpus = max(p.gpus for p in result.predictions)
    sweep = [p for p in result.predictions if p.gpus == gpus and p.epoch_bytes and p.epoch_seconds]
    return sweep if len(sweep) > 1 else []


def _format_row(p: Prediction) -> list[StyledText]:
    seconds = (
        p.step.compute_seconds,
        p.step.exposed_communication_seconds,
        p.step.input_seconds,
        p.step.straggler_seconds,
    )
    before = p.before
    return [
        str(p.gpus),
        str(p.nodes),
        str(p.batch_per_gpu),
        Text(units.format_per_second(p.samples_per_second), "strong"),
        units.format_interval(p.low, p.high),
        *([units.format_interval(before.low, before.high)] if before else []),
        units.format_share(p.scaling_efficiency),
        *(units.format_seconds(part) if part else "0" for part in seconds),
        choke_if_it_fits(p),
    ]


def _build_explanation(why: "Why", title: str) -> Section:
    from gpuyard.draw.timeline import draw_timeline_lines

    drawing = Drawing(
        why_svg(why, title),
        lambda width: [
            Text(text, _LANES[lane]) for text, lane in draw_timeline_lines(why.timeline, width)
        ],
        why.timeline.note or "",
    )
    remedies: Part = Table(
        "What would help",
        ("change", "samples/s", "gain", Column("caveat", 1)),
        [
            [
                r.change,
                units.format_per_second(r.samples_per_second),
                _format_gain(r),
                _format_caveat(r),
            ]
            for r in why.remedies
        ],
    )
    if not why.remedies:
        remedies = Sentence(
            "No change that was tried would gain 3%."
            if why.fits
            else "No change that was tried makes it fit."
        )
    return Section(
        f"Why, with {why.gpus} × a batch of {why.batch_per_gpu}",
        [*map(Sentence, why.sentences), drawing, remedies],
        anchor="why",
    )


def _format_gain(remedy: Remedy) -> str:
    return remedy.brings if remedy.makes_fit else f"{100 * (remedy.gain - 1):.0f}%"


def _format_caveat(remedy: Remedy) -> str:
    if remedy.memory_bytes is None:
        return remedy.caveat
    needs = f"needs {units.format_bytes(remedy.memory_bytes)} per GPU"
    return f"{needs}; {remedy.caveat}" if remedy.caveat else needs


def _describe_constants(result: ClusterPrediction, calibration: "Calibration | None") -> list[str]:
    """Describe the constants that are not defaults: calibrated, or measured on another machine."""
    sentences = []
    constants = list(dict.fromkeys(result.constants))
    measured = [x for x in constants if x.basis == "measured"]
    if calibration is not None and measured:
        listed = "; ".join(f"{x.name} {x.value:.3g} {x.unit}" for x in measured)
        sentences.append(f"Measured: {listed} ({measured[0].source}).")
    elif calibration is not None and not _uses_calibration(result):
        covered = "; ".join(entry.hardware.label for entry in calibration.hardware)
        sentences.append(f"The calibration does not cover this hardware: it is for {covered}.")
    elsewhere = sorted(
        {f"{x.name} {x.value:g} {x.unit}" for x in constants if x.basis == "elsewhere"}
    )
    if elsewhere:
        sentences.append(f"Measured on another machine: {'; '.join(elsewhere)}.")
    return sentences


def _uses_calibration(result: ClusterPrediction) -> bool:
    return any(
        CALIBRATED in s for s in (result.compute_basis, *(x.source for x in result.constants))
    )


def _calibration_json(result: ClusterPrediction, calibration: "Calibration | None") -> Any:
    if calibration is None or not _uses_calibration(result):
        return None
    return {"created_at": calibration.created_at}
