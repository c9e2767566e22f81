"""The answer of `gpuyard study`: verdicts first, then charts, prices, all numbers, and their sources."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.files import create_directory, write_text
from gpuyard.report import formats
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Card,
    CardRow,
    Chart,
    Charts,
    Part,
    RendererOnly,
    Section,
    Sentence,
    StyledText,
    Table,
    Text,
    Tone,
    format_json,
)
from gpuyard.report.answers.plan import plan_parts
from gpuyard.report.answers.study.cost import cost_section, describe_break_even
from gpuyard.report.answers.study.numbers import CHOKES, method_parts, number_sections
from gpuyard.report.figures.epoch_time import build_epoch_time_chart
from gpuyard.report.figures.marks import SeriesStyles, assign_styles
from gpuyard.report.figures.points import choose_reference_batch, list_batches
from gpuyard.report.figures.scaling import build_efficiency_chart, build_throughput_chart
from gpuyard.report.figures.step_split import build_step_split_chart
from gpuyard.report.html import render_page
from gpuyard.study.result import (
    ChokeFinding,
    StudyResult,
    StudyVerdict,
    WorkloadResult,
)

PAGE, _DOCUMENT = "report.html", "study.json"
_VERSION = '"gpuyard_version": '
_HEAD_BYTES = 4096  # the part of a file that names the program that wrote it


def study_answer(result: StudyResult) -> Answer:
    """Build the answer: a page shows everything, a terminal only the verdicts and the break-even."""
    names = create_slugs(workload.name for workload in result.workloads)
    sections = [
        Section(
            "Verdict" if len(names) == 1 else "Verdicts",
            [
                _verdict_card(slug, workload)
                for slug, workload in zip(names, result.workloads, strict=True)
            ]
            or [Sentence("The study has no workload.")],
            anchor="verdicts",
        ),
        *_charts(result, names),
        *([cost_section(result.cost)] if result.cost else []),
        *_plan(result),
        Section("Every number", list(number_sections(result.workloads)), anchor="numbers"),
        Section("How each number was obtained", method_parts(result), anchor="method"),
    ]
    notes: list[Part] = (
        [Bullets([f"Note: {note}" for note in result.notes])] if result.notes else []
    )
    return Answer(
        [
            RendererOnly("terminal", _summarize(result)),
            RendererOnly("page", notes),
            *(RendererOnly("page", [s]) for s in sections),
        ],
        result.as_json(),
        title=result.name,
        verb="study",
        rows="workloads",
        meta=f"{formats.date(result.created_at)} · {result.host}",
    )


def write_report(result: StudyResult, directory: Path) -> Path:
    """Write report.html and study.json into the directory, and return the path of the page."""
    answer, page = study_answer(result), directory / PAGE
    refuse_foreign_files(directory)
    create_directory(directory)
    write_text(directory / _DOCUMENT, format_json(answer.document))
    write_text(page, render_page(answer))
    return page


def refuse_foreign_files(directory: Path) -> None:
    """Raise if a report file in the directory was not written by a study, so it is never overwritten."""
    for name, mark in ((PAGE, '<meta name="generator" content="gpuyard '), (_DOCUMENT, _VERSION)):
        path = directory / name
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserMistake(f"{path} cannot be written: {error.strerror}") from error
        if mark.encode() not in head:
            raise UserMistake(
                f"{path} was not written by a study, so it is not overwritten; move it away, or name "
                "another directory with --output-dir"
            )


def _summarize(result: StudyResult) -> list[Part]:
    parts: list[Part] = []
    for workload in result.workloads:
        verdict = workload.verdict
        sentences = [verdict.sentence]
        leading = (f.remedies for f in verdict.findings if f.sentence in verdict.sentence)
        remedies = next(leading, ())
        if verdict.choke != "gpu" and remedies:
            described = ", ".join(f"{r.change} ({r.brings})" for r in remedies[:3])
            sentences.append(f"What would help: {described}.")
        if workload.open_choice is not None:
            sentences.append(workload.open_choice)
        _, tone = _choose_sign(verdict)
        card_parts = [Sentence(sentence) for sentence in sentences]
        parts.append(Card(workload.name, card_parts, headline=verdict.headline, tone=tone))
    if result.cost is not None:
        parts.append(Sentence(describe_break_even(result.cost)))
    return [*parts, *(Sentence(f"Note: {note}", _note_tone(note)) for note in result.notes)]


def _note_tone(note: str) -> Tone:
    return "caution" if note.startswith(("Doubtful", "Does not fit")) else "plain"


def _verdict_card(slug: str, workload: WorkloadResult) -> Card:
    verdict = workload.verdict
    sign, tone = _choose_sign(verdict)
    parts: list[Part] = [Sentence(verdict.sentence)]
    if workload.open_choice is not None:
        parts.append(Sentence(workload.open_choice))
    if verdict.findings:
        parts.append(CardRow([_finding_card(finding, verdict) for finding in verdict.findings]))
    return Card(
        workload.name,
        parts,
        headline=verdict.headline,
        sign=sign,
        tone=tone,
        anchor=f"verdict-{slug}",
    )


def _choose_sign(verdict: StudyVerdict) -> tuple[str, Tone]:
    """Choose the symbol and tone of a verdict; without evidence, they show why there is none."""
    if not any(finding.is_conclusive for finding in verdict.findings):
        if any(not finding.fits for finding in verdict.findings):
            return "✕", "bad"
        if any(finding.doubt for finding in verdict.findings):
            return "?", "caution"
    _, sign, tone = CHOKES[verdict.choke]
    return sign, tone


def _finding_card(finding: ChokeFinding, verdict: StudyVerdict) -> Card:
    bottleneck, sign, tone = CHOKES[finding.choke]
    badge = f"waits for {bottleneck}"
    if not finding.fits:
        badge, sign, tone = "does not fit", "✕", "bad"
    elif finding.doubt is not None:
        badge, sign, tone = f"doubtful: {badge}", "?", "caution"
    unit = "worker" if finding.basis == "measured" else "GPU"
    count = f"{finding.gpus} {unit}{'s' if finding.gpus != 1 else ''}"
    share = f"{formats.percent(finding.scaling_efficiency)} of ideal, " if finding.fits else ""
    parts: list[Part] = []
    if finding.sentence not in verdict.sentence:
        parts.append(Sentence(finding.sentence))
    if finding.doubt is not None:
        parts.append(Sentence(f"Doubtful: {finding.doubt}.", "caution"))
    if finding.remedies:
        rows: list[list[StyledText]] = [
            [
                r.change,
                formats.number(r.samples_per_second),
                Text(r.brings if r.makes_fit else formats.gain(r.gain), "strong"),
            ]
            for r in finding.remedies
        ]
        parts.append(Table("What would help", ["change", "samples/s", "gain"], rows))
    return Card(
        finding.platform,
        parts,
        badge=badge,
        sign=sign,
        tone=tone,
        facts=f"{count}, {share}{finding.basis}",
    )


def _charts(result: StudyResult, names: Sequence[str]) -> Iterator[Section]:
    styles = assign_styles(result)
    drawn = [
        _charts_of(slug, workload, styles)
        for slug, workload in zip(names, result.workloads, strict=True)
    ]
    if shown := [charts for charts in drawn if charts.charts]:
        yield Section("Charts", shown, anchor="charts")


def _plan(result: StudyResult) -> Iterator[Section]:
    if result.plan:
        yield Section(f"Plan: {result.plan.name}", plan_parts(result.plan), anchor="plan")


def create_slugs(names: Iterable[str]) -> list[str]:
    """Create a unique ASCII id for each name."""
    slugs: list[str] = []
    for position, name in enumerate(names, 1):
        ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        slug = re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:60] or f"workload-{position}"
        while slug in slugs:
            slug += f"-{position}"
        slugs.append(slug)
    return slugs


def _charts_of(slug: str, workload: WorkloadResult, styles: SeriesStyles) -> Charts:
    """Build the charts of one workload, with the batch sizes to choose from."""
    return Charts(
        list(_workload_charts(slug, workload, styles)),
        title=f"{workload.name}, {workload.precision}",
        anchor=f"charts-{slug}",
        batches=list_batches(workload),
        shown_batch=choose_reference_batch(workload),
    )


def _pale(workload: WorkloadResult) -> str:
    return ", pale if doubtful" if any(p.doubt for p in workload.measured) else ""


def _workload_charts(slug: str, workload: WorkloadResult, styles: SeriesStyles) -> Iterable[Chart]:
    batches, shown = list_batches(workload), str(choose_reference_batch(workload))
    if batches:
        yield Chart(
            f"chart-throughput-{slug}",
            f"Dots are measured, with a 95% confidence interval{_pale(workload)}; dashed lines are predicted, with a "
            "90% interval; the dotted line is what perfect scaling would give.",
            {str(b): build_throughput_chart(workload, b, styles) for b in batches},
            shown,
        )
        yield Chart(
            f"chart-efficiency-{slug}",
            "Throughput relative to perfect scaling. The further below 100%, the less an additional GPU "
            "gains.",
            {str(b): build_efficiency_chart(workload, b, styles) for b in batches},
            shown,
        )
        yield Chart(
            f"chart-step-split-{slug}",
            "Shares of one step; its total time is at the end of the bar. Predicted bars are hatched. "
            "Communication is the part that does not overlap with compute. Straggling is only predicted; in "
            "measured steps it is part of the other shares.",
            {str(b): build_step_split_chart(workload, b) for b in batches},
            shown,
        )
    if workload.epoch_times:
        yield Chart(
            f"chart-epoch-time-{slug}",
            "One pass over the training data. If a curve is flat, a larger batch gains nothing.",
            {ALL_BATCHES: build_epoch_time_chart(workload, styles)},
            wide=True,  # the batch axis gains most from width
        )
