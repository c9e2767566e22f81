"""The answer to `gpuyard predict` for a large model: does it fit, how fast is it, and with which layout."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuyard import units
from gpuyard.economics.goodput import Goodput
from gpuyard.planner import Choice
from gpuyard.planner.choice import format_dollars
from gpuyard.predictor.large.launch import write_launch_lines
from gpuyard.predictor.large.prediction import LargePrediction, LargeResult
from gpuyard.predictor.power import PowerCap
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    DefinitionList,
    Part,
    RendererOnly,
    Section,
    Sentence,
    Table,
    Text,
)
from gpuyard.report.answers.goodput import describe_losses
from gpuyard.report.answers.predict import describe_power_cap
from gpuyard.report.figures.large import (
    build_layouts_chart,
    build_memory_chart,
    build_step_chart,
)

_COLUMNS = (
    "GPUs",
    Column("strategy", 2),
    "layout",
    Column("micro-batch", 4),
    Column("recompute", 3),
    "tokens/s/GPU",
    Column("90% interval", 1),
    "MFU",
    "memory/GPU",
    Column("limit", 1),
)
_CHOKES = {
    "compute": "compute",
    "bubble": "the pipeline's bubble",
    "tensor": "tensor-parallel communication",
    "context": "context-parallel communication",
    "expert": "the all-to-all between experts",
    "pipeline": "the transfer between pipeline stages",
    "data": "the exchange of weights and gradients",
}
_ADVICE = {
    "compute": "More GPUs help.",
    "bubble": "A larger global batch, fewer stages, or more chunks per stage (vp) would help.",
    "tensor": "Less tensor parallelism, or a faster link inside the machine, would help.",
    "context": "Less context parallelism or a faster link would help.",
    "expert": "Expert groups that stay inside one machine, or a faster network, would help.",
    "pipeline": "Fewer stages or a faster network would help.",
    "data": "A larger batch per GPU, a faster network, or tensor parallelism would help.",
}


def large_answer(
    result: LargeResult,
    *,
    why: bool = False,
    cheapest: Choice | None = None,
    losses: Mapping[int, Goodput] | None = None,
    power_cap: PowerCap | None = None,
) -> Answer:
    """Build the answer; `cheapest` is the cheapest offer for the most GPUs, `losses` is by number of GPUs."""
    largest = result.largest
    title = f"{result.workload} on {result.cluster} ({largest.precision}, sequence {largest.sequence:,})"
    parts: list[Part] = [_first_line(result, largest, cheapest)]
    if not result.evidence:
        kind = "run of a model with experts" if result.training.shape.experts else "large-model run"
        caveat = f"No published {kind} on such a GPU in this precision: the interval is wide."
        parts.append(Sentence(caveat, "caution"))
    parts.append(Table(title, list(_COLUMNS), [_row(p) for p in result.predictions]))
    if largest.fits:
        parts.append(
            Sentence(
                f"At {_gpus(largest.gpus)}, {_CHOKES[largest.choke]} limits the step"
                f"{'' if largest.choke == 'compute' else ' most'}. {_ADVICE[largest.choke]}"
            )
        )
    if cheapest is not None and cheapest.layout is not None:
        parts.append(
            Sentence(
                f"The cheapest offer is {cheapest.summary}: {cheapest.price}, {cheapest.duration}, "
                f"{cheapest.how_trained}. gpuyard plan compares all others."
            )
        )
    if largest.energy_kwh is not None and largest.fits:
        parts.append(
            Sentence(f"The training takes {largest.energy_kwh:,.0f} kWh, without cooling.")
        )
    if result.simpler is not None and largest.fits:
        slower = 1 - result.simpler.tokens_per_second / largest.tokens_per_second
        if slower > 0.0:
            how = "about as fast" if slower < 0.01 else f"{slower:.0%} slower"
            parts.append(Sentence(f"Simpler: {result.simpler.layout.description}, {how}."))
    if power_cap is not None:
        rate = largest.tokens_per_second_per_gpu
        parts.append(Sentence(describe_power_cap(power_cap, rate, "tokens")))
    lost = (losses or {}).get(largest.gpus)
    if lost is not None and largest.days is not None:
        ideal, expected = (
            units.format_seconds(86400 * days)
            for days in (largest.days, largest.days * lost.stretch)
        )
        stretched = f"So {ideal} become about {expected}."
        parts.append(Sentence(f"{describe_losses(lost)} {stretched} See gpuyard goodput."))
    parts.append(_memory_table(largest))
    if why:
        parts += _explanation(result, largest)
    else:
        parts.append(
            Sentence("Add --why for the step's parts, other layouts, and launch commands.")
        )
    document = _add_losses(result.as_json(), losses or {})
    document["cheapest_offer"] = None if cheapest is None else asdict(cheapest)
    if power_cap is not None:
        document["power_cap"] = power_cap.as_json()
        for row in document["predictions"]:
            row["tokens_per_joule"] = row["tokens_per_second_per_gpu"] / power_cap.drawn_watts
    return Answer(parts, document, title=title, verb="predict", rows="predictions")


def layouts_svg(result: LargeResult) -> str:
    """Draw the layouts of the largest number of GPUs that no other beats in both speed and memory."""
    from gpuyard.draw.layouts import LayoutPoint, draw_layouts_svg

    largest = result.largest
    points = [
        LayoutPoint(
            layout.memory_bytes,
            layout.tokens_per_second / largest.gpus,
            f"{layout.layout.description}, recompute {layout.layout.recompute}",
            layout.memory_bytes <= largest.memory_limit,
        )
        for layout in result.pareto
    ]
    return draw_layouts_svg(
        points,
        largest.memory_limit,
        f"{result.workload} on {_gpus(largest.gpus)} of {result.cluster}",
        f"The fastest layouts by memory, out of {result.candidates:,}; hollow ones don't fit.",
    )


def _add_losses(document: dict[str, Any], losses: Mapping[int, Goodput]) -> dict[str, Any]:
    """Add goodput, and days with losses, to each prediction of a training whose length is known."""
    for row in document["predictions"]:
        lost = losses.get(row["gpus"])
        row["goodput"] = None if lost is None else lost.as_json()
        row["expected_days"] = None if lost is None else row["days"] * lost.stretch
    return document


def _first_line(result: LargeResult, p: LargePrediction, cheapest: Choice | None) -> Sentence:
    where = result.cluster if p.gpus == result.gpus else f"{_gpus(p.gpus)} of {result.cluster}"
    total = units.format_bytes(sum(p.memory.values()))
    if not p.fits:
        remedy = (
            f" It would fit with {p.remedy}." if p.remedy else " More or larger GPUs are needed."
        )
        over = units.format_bytes(p.memory_needed_over)
        return Sentence(
            f"No: needs {total} per GPU, {over} more than {where} can hold.{remedy}", "bad"
        )
    spread = max(p.high / p.tokens_per_second - 1, 1 - p.low / p.tokens_per_second)
    facts = [f"{p.tokens_per_second_per_gpu:,.0f} tokens/s/GPU ± {spread:.0%}"]
    if p.days is not None:
        tokens = units.format_tokens(p.days * 86400 * p.tokens_per_second)
        facts.append(f"{units.format_seconds(p.days * 86400)} for {tokens} tokens")
    if cheapest is not None:
        facts.append(f"{format_dollars(cheapest.usd_per_run)} on the cheapest offer")
    how = f" with {p.layout.method}" if p.gpus > 1 else ""
    return Sentence(f"Yes: fits on {where}{how}, {', '.join(facts)}.", "good")


def _row(p: LargePrediction) -> list[str | Text]:
    low, high = p.low / p.gpus, p.high / p.gpus
    total = units.format_bytes(sum(p.memory.values()))
    return [
        str(p.gpus),
        p.strategy,
        p.layout.description,
        str(p.layout.micro_batch),
        p.layout.recompute,
        f"{p.tokens_per_second_per_gpu:,.0f}",
        f"{low:,.0f}–{high:,.0f}",
        f"{p.mfu:.0%}",
        total if p.fits else Text(f"{total}: does not fit", "bad"),
        p.choke,
    ]


def _memory_table(p: LargePrediction) -> Part:
    parts = [*p.memory.items(), ("total", sum(p.memory.values()))]
    return DefinitionList(
        [(name, units.format_bytes(value)) for name, value in parts],
        title=f"Memory of the fullest of {_gpus(p.gpus)}",
    )


def _explanation(result: LargeResult, p: LargePrediction) -> list[Part]:
    total = p.step_seconds
    step = Table(
        f"One step of {_gpus(p.gpus)}: {units.format_seconds(total)}",
        ["part", "time", "share"],
        [
            [name, units.format_seconds(seconds), f"{seconds / total:.0%}"]
            for name, seconds in p.step.items()
            if seconds > 0.001 * total
        ],
    )
    layouts = Table(
        f"Fastest layouts by memory, out of {result.candidates:,}",
        ["layout", Column("micro-batch", 2), Column("recompute", 1), "tokens/s/GPU", "memory/GPU"],
        [
            [
                a.layout.description,
                str(a.layout.micro_batch),
                a.layout.recompute,
                f"{a.tokens_per_second / p.gpus:,.0f}",
                units.format_bytes(a.memory_bytes),
            ]
            for a in result.pareto
        ],
    )
    charts = [
        Chart(
            "layouts",
            "The fastest layouts by memory.",
            {ALL_BATCHES: build_layouts_chart(result, p.gpus)},
        ),
        Chart("step", "The step by part.", {ALL_BATCHES: build_step_chart(result.predictions)}),
        Chart("memory", "Memory by part.", {ALL_BATCHES: build_memory_chart(result.predictions)}),
    ]
    lines = write_launch_lines(p, result.training)
    starts: list[Part] = [DefinitionList(list(lines.commands.items()))] if lines.commands else []
    if lines.left_out:
        starts.append(DefinitionList(list(lines.left_out.items()), title="Left out"))
    return [
        step,
        layouts,
        RendererOnly("page", [Charts(charts)]),
        Section("Start it", starts),
    ]


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
