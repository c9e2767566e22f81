"""A study: verdicts first, then charts, prices, every number, and how each was obtained."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.files import make_directory, write_text
from gpuyard.report import formats
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Card,
    CardRow,
    Chart,
    Charts,
    Only,
    Part,
    Section,
    Sentence,
    Table,
    Text,
    Tone,
    Words,
    json_text,
)
from gpuyard.report.answers.plan import plan_parts
from gpuyard.report.answers.study.cost import break_even_words, cost_section
from gpuyard.report.answers.study.numbers import CHOKES, method_parts, number_sections
from gpuyard.report.figures.epoch_time import epoch_time_option
from gpuyard.report.figures.marks import Looks, looks_of
from gpuyard.report.figures.points import batches_of, reference_batch
from gpuyard.report.figures.scaling import efficiency_option, throughput_option
from gpuyard.report.figures.step_split import step_split_option
from gpuyard.report.html import render_page
from gpuyard.study.result import (
    ChokeFinding,
    StudyResult,
    StudyVerdict,
    WorkloadResult,
)

_PAGE, _DOCUMENT = "report.html", "study.json"
_VERSION = '"gpuyard_version": '
_BEGINNING_BYTES = 4096  # of a file, in which it says who wrote it


def study_answer(result: StudyResult) -> Answer:
    """A page has everything, a terminal the verdicts and the break-even."""
    names = slugs(workload.name for workload in result.workloads)
    named = list(zip(names, result.workloads, strict=True))
    sections = [
        Section(
            "Verdict" if len(named) == 1 else "Verdicts",
            [_verdict_card(slug, workload) for slug, workload in named]
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
            Only("terminal", _short(result)),
            Only("page", notes),
            *(Only("page", [s]) for s in sections),
        ],
        result.as_json(),
        title=result.name,
        verb="study",
        meta=f"{formats.date(result.created_at)} · {result.host}",
    )


def write_report(result: StudyResult, directory: Path) -> Path:
    """Write report.html and study.json into the directory; returns the path of the page."""
    answer, page = study_answer(result), directory / _PAGE
    refuse_foreign(directory)
    make_directory(directory)
    write_text(directory / _DOCUMENT, json_text(answer.document))
    write_text(page, render_page(answer))
    return page


def refuse_foreign(directory: Path) -> None:
    """Who names a directory does not name these files in it: one that is not a study's stays."""
    for name, sign in ((_PAGE, '<meta name="generator" content="gpuyard '), (_DOCUMENT, _VERSION)):
        path = directory / name
        try:
            with path.open("rb") as file:
                beginning = file.read(_BEGINNING_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserMistake(f"{path} can't be written: {error.strerror}") from error
        if sign.encode() not in beginning:
            raise UserMistake(
                f"{path} was not written by a study, so it is not overwritten; move it away, or name "
                "another directory with --output"
            )


def _short(result: StudyResult) -> list[Part]:
    parts: list[Part] = []
    for workload in result.workloads:
        verdict = workload.verdict
        said = [verdict.sentence]
        leading = (f.remedies for f in verdict.findings if f.sentence in verdict.sentence)
        remedies = next(leading, ())
        if verdict.choke != "gpu" and remedies:
            helps = ", ".join(f"{r.what} ({r.brings})" for r in remedies[:3])
            said.append(f"What would help: {helps}.")
        if workload.open_choice is not None:
            said.append(workload.open_choice)
        _, tone = _look(verdict)
        parts.append(
            Card(workload.name, list(map(Sentence, said)), headline=verdict.headline, tone=tone)
        )
    if result.cost is not None:
        parts.append(Sentence(break_even_words(result.cost)))
    return [*parts, *(Sentence(f"Note: {note}", _note_tone(note)) for note in result.notes)]


def _note_tone(note: str) -> Tone:
    return "caution" if note.startswith(("Doubtful", "Does not fit")) else "plain"


def _verdict_card(slug: str, workload: WorkloadResult) -> Card:
    verdict = workload.verdict
    sign, tone = _look(verdict)
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


def _look(verdict: StudyVerdict) -> tuple[str, Tone]:
    """Its sign and tone; where there is nothing to stand on, that is bad or doubtful."""
    if not any(finding.tells for finding in verdict.findings):
        if any(not finding.fits for finding in verdict.findings):
            return "✕", "bad"
        if any(finding.doubt for finding in verdict.findings):
            return "?", "caution"
    _, sign, tone = CHOKES[verdict.choke]
    return sign, tone


def _finding_card(finding: ChokeFinding, verdict: StudyVerdict) -> Card:
    waited, sign, tone = CHOKES[finding.choke]
    badge = f"waits for {waited}"
    if not finding.fits:
        badge, sign, tone = "does not fit", "✕", "bad"
    elif finding.doubt is not None:
        badge, sign, tone = f"doubtful: {badge}", "?", "caution"
    unit = "worker" if finding.basis == "measured" else "GPU"
    many = f"{finding.gpus} {unit}{'s' if finding.gpus != 1 else ''}"
    share = f"{formats.percent(finding.scaling_efficiency)} of ideal, " if finding.fits else ""
    parts: list[Part] = []
    if finding.sentence not in verdict.sentence:
        parts.append(Sentence(finding.sentence))
    if finding.doubt is not None:
        parts.append(Sentence(f"Doubtful: {finding.doubt}.", "caution"))
    if finding.remedies:
        rows: list[list[Words]] = [
            [
                r.what,
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
        facts=f"{many}, {share}{finding.basis}",
    )


def _charts(result: StudyResult, names: Sequence[str]) -> Iterator[Section]:
    looks = looks_of(result)
    drawn = [
        _charts_of(slug, workload, looks)
        for slug, workload in zip(names, result.workloads, strict=True)
    ]
    if shown := [charts for charts in drawn if charts.charts]:
        yield Section("Charts", shown, anchor="charts")


def _plan(result: StudyResult) -> Iterator[Section]:
    if result.plan:
        yield Section(f"What to get: {result.plan.name}", plan_parts(result.plan), anchor="plan")


def slugs(names: Iterable[str]) -> list[str]:
    """A unique ASCII id for each name."""
    taken: dict[str, None] = {}
    for position, name in enumerate(names, 1):
        ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        slug = re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:60] or f"workload-{position}"
        while slug in taken:
            slug += f"-{position}"
        taken[slug] = None
    return list(taken)


def _charts_of(slug: str, workload: WorkloadResult, looks: Looks) -> Charts:
    """The charts of one workload and the batch sizes to choose from."""
    return Charts(
        list(_workload_charts(slug, workload, looks)),
        title=f"{workload.name}, {workload.precision}",
        anchor=f"charts-{slug}",
        batches=batches_of(workload),
        shown_batch=reference_batch(workload),
    )


def _pale(workload: WorkloadResult) -> str:
    return ", pale where doubtful" if any(p.doubt for p in workload.measured) else ""


def _workload_charts(slug: str, workload: WorkloadResult, looks: Looks) -> Iterable[Chart]:
    batches, shown = batches_of(workload), str(reference_batch(workload))
    if batches:
        yield Chart(
            f"chart-throughput-{slug}",
            f"Dots are measured, with a 95 % confidence interval{_pale(workload)}; dashed lines are predicted, with a "
            "90 % interval; the dotted line is what perfect scaling would give.",
            {str(b): throughput_option(workload, b, looks) for b in batches},
            shown,
        )
        yield Chart(
            f"chart-efficiency-{slug}",
            "Throughput as a share of what as many single GPUs would do together. The further below "
            "100 %, the less an additional GPU is worth.",
            {str(b): efficiency_option(workload, b, looks) for b in batches},
            shown,
        )
        yield Chart(
            f"chart-step-split-{slug}",
            "Shares of one step; its whole time is written at the end of the bar. Predicted bars are "
            "hatched. Communication is what compute could not hide. Straggling is predicted only; in measured steps "
            "it is part of the other shares.",
            {str(b): step_split_option(workload, b) for b in batches},
            shown,
        )
    if workload.epoch_times:
        yield Chart(
            f"chart-epoch-time-{slug}",
            "One pass over the training data. Where a curve is flat, a bigger batch gains nothing.",
            {ALL_BATCHES: epoch_time_option(workload, looks)},
            wide=True,  # the batch axis gains most from width
        )
