"""How a workload would scale: a table of predictions, and why one of them is as it is."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuyard import units
from gpuyard.catalog import Gpu
from gpuyard.catalog.hardware import end_of_life
from gpuyard.errors import UserMistake
from gpuyard.predict import Calibration, ClusterPrediction, Prediction, Remedy
from gpuyard.predict.calibration.applied import CALIBRATED
from gpuyard.report.answer import (
    Answer,
    Column,
    Drawing,
    Part,
    Section,
    Sentence,
    Table,
    Text,
    Tone,
    Words,
)

if TYPE_CHECKING:
    from gpuyard.predict.explain.why import Why
    from gpuyard.predict.stacks.next_run import NextRun

_COLUMNS = (
    "GPUs",
    Column("nodes", 4),
    Column("batch/GPU", 2),
    "samples/s",
    Column("90 % interval", 1),
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
    calibration: Calibration | None = None,
    why: "Why | None" = None,
    notes: Sequence[str] = (),
    gpu: Gpu | None = None,
    next_run: "NextRun | None" = None,
) -> Answer:
    """`how` is what the prediction was asked with: strategy, options of the exchange, other jobs; `notes` are
    about how its machines are wired, `gpu` is what is in them; `next_run` would tell most."""
    title = f"{result.workload} on {result.cluster} ({', '.join([result.precision, *how])})"
    more = [_BEFORE] if any(p.before for p in result.predictions) else []
    columns: list[Column | str] = [*_COLUMNS[:5], *more, *_COLUMNS[5:]]
    table = Table(title, columns, [_row(p) for p in result.predictions])
    sentences = [result.precision_note] if result.precision_note else []
    sentences += [f"Single-GPU speed: {result.single_gpu_speed}.", *_measured(result, calibration)]
    if result.framework_note:
        before = more and not result.points
        any_stack = " 'before' is the interval of any stack." if before else ""
        sentences.append(result.framework_note + any_stack)
    sentences += [note for note in (result.gradient_note, result.peer_note) if note]
    if result.points:
        one = result.points == 1
        many = "1 measured figure" if one else f"{result.points} measured figures"
        sentences.append(
            f"Several GPUs: predicted with {many} of several GPUs; 'before' is the interval without "
            f"{'it' if one else 'them'}."
        )
        if result.point_sources != ("the workload",):
            sentences.append(f"Measured: {'; '.join(result.point_sources)}.")
    if next_run is not None:
        sentences.append(next_run.sentence)
    batches = {p.batch_per_gpu for p in result.predictions}
    if len(batches) > 1:
        sentences.append(_saturated(result, batches))
    wiring = [f"Wiring: {note}." for note in notes]
    parts: list[Part] = [table, *map(Sentence, [*sentences, *wiring])]
    told = "" if why is not None and not why.fits else result.memory_note
    parts += [
        Sentence(note, "caution") for note in (told, result.base_note, result.points_note) if note
    ]
    parts += _moved(result)
    old = end_of_life(gpu) if gpu else None
    if old is not None:
        parts.append(Sentence(old.sentence, "caution"))
    if why is not None:
        parts.append(_explained(why, title))
    document = result.as_json() | {
        "calibration": _calibrated(result, calibration),
        "next_run": asdict(next_run) if next_run else None,
        "end_of_life": old.model_dump(mode="json") if old else None,
    }
    return Answer(
        parts,
        document | ({"why": why.as_json()} if why else {}),
        title=title,
        verb="predict",
    )


def choke_cell(p: Prediction) -> Words:
    """What more GPUs would not help against stands out."""
    return p.choke if p.choke in ("gpu", "none") else Text(p.choke, "caution")


def choke_if_it_fits(p: Prediction) -> Words:
    """The same, or that memory is too small for it."""
    return choke_cell(p) if p.fits is not False else Text(f"{p.choke} (does not fit)", "bad")


def why_svg(why: "Why", title: str) -> str:
    """The time line of the explained step as a picture."""
    from gpuyard.draw.timeline import timeline_svg

    many = f"{why.gpus} × a batch of {why.batch_per_gpu}"
    return timeline_svg(why.timeline, f"One step of {title}, {many}")


def _saturated(result: ClusterPrediction, batches: set[int]) -> str:
    least = result.saturating_batch or 1
    asked = [batch for batch in sorted(batches) if batch >= least]
    seen = f"of these, from {asked[0]} on" if asked else "none of these is that large"
    return f"A GPU is saturated (90 % of its fastest) from a batch of {least:,} per GPU on: {seen}."


_LARGE_MOVES = ("parameters out", "gradients back")


def _moved(result: ClusterPrediction) -> list[Part]:
    """What crosses the first GPU's link when, where one process serves all GPUs, and for a sweep over batches what
    an epoch moves against how long it takes."""
    found = [p for p in result.predictions if len(p.moves) > 1]
    if not found:
        return []
    names = [move.what for move in found[0].moves]
    rows: list[list[Words]] = [
        [
            str(p.gpus),
            str(p.batch_per_gpu),
            *(units.format_bytes(move.size_bytes) for move in p.moves),
            units.format_bytes(sum(move.size_bytes for move in p.moves)),
            units.format_bytes(p.epoch_bytes) if p.epoch_bytes else "",
        ]
        for p in found
    ]
    columns: list[Column | str] = [
        "GPUs",
        "batch/GPU",
        *(Column(name, 2 if name in _LARGE_MOVES else 3) for name in names),
        "a step",
        "an epoch",
    ]
    parts: list[Part] = [
        Table("What moves over the first GPU's link, in this order", columns, rows)
    ]
    sweep = swept(result)
    if sweep:
        from gpuyard.draw.bytes_moved import bytes_moved_lines

        drawing = Drawing(
            sweep_svg(result),
            lambda width: [Text(line) for line in bytes_moved_lines(sweep, width)],
            "An epoch by its total batch: bytes moved, and time.",
        )
        parts.append(drawing)
    return parts


def sweep_svg(result: ClusterPrediction) -> str:
    """Time of an epoch against the bytes that it moves, one dot a batch."""
    from gpuyard.draw.bytes_moved import bytes_moved_svg

    sweep = swept(result)
    if not sweep:
        raise UserMistake(
            "--svg draws what --why explains, or a sweep over several --batch of a workload with a dataset: add --why"
        )
    title = f"{result.workload} on {result.cluster}: an epoch by its total batch"
    return bytes_moved_svg(sweep, title)


def swept(result: ClusterPrediction) -> list[Prediction]:
    """The predictions of the most GPUs, if they are of several batches and their epochs are known."""
    most = max(p.gpus for p in result.predictions)
    found = [p for p in result.predictions if p.gpus == most and p.epoch_bytes and p.epoch_seconds]
    return found if len(found) > 1 else []


def _row(p: Prediction) -> list[Words]:
    seconds = (
        p.step.compute_seconds,
        p.step.exposed_communication_seconds,
        p.step.input_seconds,
        p.step.straggler_seconds,
    )
    was = p.before
    return [
        str(p.gpus),
        str(p.nodes),
        str(p.batch_per_gpu),
        Text(units.format_per_second(p.samples_per_second), "strong"),
        units.format_interval(p.low, p.high),
        *([units.format_interval(was.low, was.high)] if was else []),
        units.format_share(p.scaling_efficiency),
        *(units.format_seconds(part) if part else "0" for part in seconds),
        choke_if_it_fits(p),
    ]


def _explained(why: "Why", title: str) -> Section:
    from gpuyard.draw.timeline import timeline_lines

    drawing = Drawing(
        why_svg(why, title),
        lambda width: [
            Text(text, _LANES[lane]) for text, lane in timeline_lines(why.timeline, width)
        ],
        why.timeline.note or "",
    )
    helpful: Part = Table(
        "What would help",
        ("change", "samples/s", "gain", Column("caveat", 1)),
        [
            [r.what, units.format_per_second(r.samples_per_second), _gain(r), _caveat(r)]
            for r in why.remedies
        ],
    )
    if not why.remedies:
        helpful = Sentence(
            "Nothing that was tried would gain 3 %."
            if why.fits
            else "Nothing that was tried makes it fit."
        )
    return Section(
        f"Why, with {why.gpus} × a batch of {why.batch_per_gpu}",
        [*map(Sentence, why.sentences), drawing, helpful],
        anchor="why",
    )


def _gain(remedy: Remedy) -> str:
    return remedy.brings if remedy.makes_fit else f"{100 * (remedy.gain - 1):.0f} %"


def _caveat(remedy: Remedy) -> str:
    if remedy.memory_bytes is None:
        return remedy.caveat
    needs = f"needs {units.format_bytes(remedy.memory_bytes)} per GPU"
    return f"{needs}; {remedy.caveat}" if remedy.caveat else needs


def _measured(result: ClusterPrediction, calibration: Calibration | None) -> list[str]:
    """Which constants are not defaults: brought by a calibration, or measured on another machine."""
    said = []
    constants = list(dict.fromkeys(result.constants))
    own = [x for x in constants if x.basis == "measured"]
    if calibration is not None and own:
        listed = "; ".join(f"{x.name} {x.value:.3g} {x.unit}" for x in own)
        said.append(f"Measured: {listed} ({own[0].source}).")
    elif calibration is not None and not _applies(result):
        known = "; ".join(entry.hardware.label for entry in calibration.hardware)
        said.append(f"The calibration does not cover this hardware: it is for {known}.")
    elsewhere = sorted(
        {f"{x.name} {x.value:g} {x.unit}" for x in constants if x.basis == "elsewhere"}
    )
    if elsewhere:
        said.append(f"Measured on another machine: {'; '.join(elsewhere)}.")
    return said


def _applies(result: ClusterPrediction) -> bool:
    """Whether anything of a calibration entered a prediction."""
    return any(
        CALIBRATED in s for s in (result.compute_basis, *(x.source for x in result.constants))
    )


def _calibrated(result: ClusterPrediction, calibration: Calibration | None) -> Any:
    if calibration is None or not _applies(result):
        return None
    return {"created_at": calibration.created_at}
