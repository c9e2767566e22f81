"""A study: verdicts first, then charts, prices, every number, and how each was obtained."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuyard import units
from gpuyard.errors import UserMistake
from gpuyard.files import make_directory, write_text
from gpuyard.predict import Choke, Constant
from gpuyard.report import formats
from gpuyard.report.answer import (
    Answer,
    Card,
    Cards,
    Column,
    Facts,
    Items,
    Only,
    Part,
    Section,
    Sentence,
    Table,
    Text,
    Tone,
    Words,
)
from gpuyard.report.answers.plan import plan_parts
from gpuyard.report.answers.study.charts import (
    break_even_chart,
    cash_charts,
    slugs,
    workload_charts,
)
from gpuyard.report.document import json_text
from gpuyard.report.figures.epoch_time import epoch_table
from gpuyard.report.figures.marks import here_platform, looks_of
from gpuyard.report.figures.sensitivity import input_name, input_value
from gpuyard.report.html import render_page
from gpuyard.study.result import (
    CostResult,
    Curve,
    Finding,
    HorizonResult,
    StudyResult,
    Verdict,
    WorkloadResult,
)

_PAGE, _DOCUMENT = "report.html", "study.json"
_VERSION = '"gpuyard_version": '
_BEGINNING_BYTES = 4096  # of a file, in which it says who wrote it

_CHOKES: dict[Choke, tuple[str, str, Tone]] = {  # what is waited for, a sign of it, and its tone
    "gpu": ("the GPUs", "▲", "good"),
    "network": ("the network", "■", "bad"),
    "pcie": ("PCIe", "■", "bad"),
    "storage": ("storage", "◆", "caution"),
    "host": ("the host", "◆", "caution"),
    "none": ("nothing in particular", "●", "plain"),
}


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
        *([_cost(result.cost)] if result.cost else []),
        *_plan(result),
        Section("Every number", list(_numbers(result.workloads)), anchor="numbers"),
        Section("How each number was obtained", _method(result), anchor="method"),
    ]
    notes: list[Part] = [Items([f"Note: {note}" for note in result.notes])] if result.notes else []
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
                f"{path} is not of a study, so it is not overwritten; move it away, or name "
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
        _, tone = _look(verdict)
        parts.append(
            Card(workload.name, list(map(Sentence, said)), headline=verdict.headline, tone=tone)
        )
    if result.cost is not None:
        parts.append(Sentence(_break_even_words(result.cost)))
    return [*parts, *(Sentence(f"Note: {note}", _note_tone(note)) for note in result.notes)]


def _note_tone(note: str) -> Tone:
    return "caution" if note.startswith(("Doubtful", "Does not fit")) else "plain"


def _break_even_words(cost: CostResult) -> str:
    sentence = (
        f"Renting at ${cost.rent_usd_per_hour:.2f}/h costs as much as buying after "
        f"{cost.undiscounted_break_even_hours:,.0f} h ({cost.undiscounted_break_even_years:.2f} years)"
    )
    if cost.speed_lead:
        sentence += (
            f", and as much as its price less the {units.format_share(cost.speed_lead)} speed lead "
            f"after {cost.break_even_hours:,.0f} h ({cost.break_even_years:.2f} years)"
        )
    return f"{sentence}."


def _verdict_card(slug: str, workload: WorkloadResult) -> Card:
    verdict = workload.verdict
    sign, tone = _look(verdict)
    parts: list[Part] = [Sentence(verdict.sentence)]
    if verdict.findings:
        parts.append(Cards([_finding_card(finding, verdict) for finding in verdict.findings]))
    return Card(
        workload.name,
        parts,
        headline=verdict.headline,
        sign=sign,
        tone=tone,
        anchor=f"verdict-{slug}",
    )


def _look(verdict: Verdict) -> tuple[str, Tone]:
    """Its sign and tone; where there is nothing to stand on, that is bad or doubtful."""
    if not any(finding.tells for finding in verdict.findings):
        if any(not finding.fits for finding in verdict.findings):
            return "✕", "bad"
        if any(finding.doubt for finding in verdict.findings):
            return "?", "caution"
    _, sign, tone = _CHOKES[verdict.choke]
    return sign, tone


def _finding_card(finding: Finding, verdict: Verdict) -> Card:
    waited, sign, tone = _CHOKES[finding.choke]
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
        workload_charts(slug, workload, looks)
        for slug, workload in zip(names, result.workloads, strict=True)
    ]
    if shown := [charts for charts in drawn if charts.charts]:
        yield Section("Charts", shown, anchor="charts")


def _plan(result: StudyResult) -> Iterator[Section]:
    if result.plan:
        yield Section(f"What to get: {result.plan.name}", plan_parts(result.plan), anchor="plan")


def _cost(cost: CostResult) -> Section:
    sentence = (
        f"Renting at {formats.usd(cost.rent_usd_per_hour)}/h has cost as much as buying for "
        f"{formats.usd(cost.buy_usd)} after {formats.number(cost.undiscounted_break_even_hours)} hours: "
        f"{cost.undiscounted_break_even_years:.1f} years at {formats.number(cost.hours_per_year)} hours "
        "per year."
    )
    if cost.speed_lead > 0:
        sentence += (
            f" By the rule of thumb that takes the {formats.percent(cost.speed_lead)} speed lead of the "
            f"bought machine off its price, it is even after {formats.number(cost.break_even_hours)} hours."
        )
    parts: list[Part] = [Sentence(sentence), break_even_chart(cost), _cost_figures(cost)]
    if cost.horizon is not None:
        horizon = cost.horizon
        parts += [Sentence(_horizon_words(horizon)), cash_charts(horizon), _tornado(horizon)]
    return Section("Rent or buy", parts, anchor="cost")


def _cost_figures(cost: CostResult) -> Table:
    facts = [
        ("renting", f"{formats.usd(cost.rent_usd_per_hour)}/h"),
        ("buying", formats.usd(cost.buy_usd)),
        ("use", f"{formats.number(cost.hours_per_year)} h per year"),
        ("renting for a year", formats.usd(cost.rent_usd_per_hour * cost.hours_per_year)),
        (
            "break-even",
            _even(cost.undiscounted_break_even_hours, cost.undiscounted_break_even_years),
        ),
    ]
    if cost.speed_lead > 0:
        facts += [
            ("speed lead of the bought machine", formats.percent(cost.speed_lead)),
            (
                "break-even by the price less the speed lead",
                _even(cost.break_even_hours, cost.break_even_years),
            ),
        ]
    return Table("The figures behind it", ["figure", "value"], facts)


def _even(hours: float, years: float) -> str:
    return f"{formats.number(hours)} h, {years:.2f} years"


def _horizon_words(horizon: HorizonResult) -> str:
    saves = horizon.saving_usd >= 0
    even = "is never even with renting"
    if horizon.break_even_months is not None:
        even = f"is even with renting after {horizon.break_even_months:.1f} months"
    return (
        f"Over {len(horizon.rented_cash_by_month) - 1} months renting costs "
        f"{formats.usd(sum(horizon.rented_cash_by_month))} and owning, for equal work, "
        f"{formats.usd(sum(horizon.owned_cash_by_month))}: owning {'saves' if saves else 'costs'} "
        f"{formats.usd(abs(horizon.saving_usd))}{'' if saves else ' more'} in today's money, and {even}. "
        f"Prices as given on {horizon.price_date}."
    )


def _tornado(horizon: HorizonResult) -> Table:
    def even(months: float | None) -> str:
        return "never" if months is None else f"{months:.1f} months"

    rows = [
        [
            input_name(bar.name),
            input_value(bar.name, bar.low),
            input_value(bar.name, bar.high),
            formats.usd(bar.saving_at_low_usd),
            formats.usd(bar.saving_at_high_usd),
            even(bar.break_even_at_low_months),
            even(bar.break_even_at_high_months),
        ]
        for bar in horizon.tornado
    ]
    columns = ("input", "from", "to", "saving at the low end", "at the high end",
               "even after, low end", "high end")  # fmt: skip
    title = f"What each input does, moved by {formats.percent(horizon.swing)}"
    return Table(title, columns, rows, folded=True)


def _numbers(workloads: Sequence[WorkloadResult]) -> Iterator[Section]:
    for workload in workloads:
        facts = (
            f"{workload.model}, {formats.number(workload.parameters)} parameters, "
            f"{formats.size(workload.gradient_bytes)} of gradients per step, "
            f"{formats.number(workload.forward_flops / 1e9)} GFLOP forward per sample, "
            f"{workload.precision}"
        )
        tables: list[Part] = [Sentence(facts, "quiet")]
        if workload.measured:
            tables.append(_measured(workload))
        tables += map(_predicted, workload.curves)
        if workload.epoch_times:
            tables.append(_epochs(workload))
        if not workload.measured and not workload.curves:
            tables.append(Sentence("Nothing was measured or predicted for it.", "quiet"))
        yield Section(workload.name, tables)


def _measured(workload: WorkloadResult) -> Table:
    count = len(workload.measured)
    columns = ["workers", "batch per worker", "strategy", "samples/s", "95 % interval", "efficiency",
               "compute", "exposed communication", "input", "measurement"]  # fmt: skip
    rows: list[list[Words]] = [
        [
            str(point.workers),
            str(point.batch_per_worker),
            point.strategy,
            Text(formats.number(point.samples_per_second), "strong"),
            f"{formats.number(point.low)} to {formats.number(point.high)}",
            formats.percent(point.scaling_efficiency),
            formats.seconds(point.compute_seconds),
            formats.seconds(point.exposed_communication_seconds),
            formats.seconds(point.input_seconds),
            point.measurement_id,
        ]
        for point in workload.measured
    ]
    if any(point.doubt for point in workload.measured):
        columns.append("doubtful")
        for row, point in zip(rows, workload.measured, strict=True):
            row.append(Text(point.doubt or "", "caution"))
    runs = f"{count} {'run' if count == 1 else 'runs'}"
    title = f"Measured on {here_platform(workload)}{_measured_in(workload)}: {runs}"
    return Table(title, columns, rows, folded=True)


def _measured_in(workload: WorkloadResult) -> str:
    """The curve of this machine has the precision of its runs."""
    there = [p.precision for curve in workload.curves if curve.here for p in curve.predictions]
    return f" in {there[0]}" if there else ""


def _predicted(curve: Curve) -> Table:
    here = " (this machine)" if curve.here and curve.platform != "this machine" else ""
    count = len(curve.predictions)
    columns = ("GPUs", "machines × GPUs", "batch per GPU", "strategy", "samples/s", "90 % interval",
               "efficiency", "compute", "exposed communication", "input", "straggling", "waits for",
               "memory per GPU", "fits")  # fmt: skip
    rows: list[list[Words]] = [
        [
            str(p.gpus),
            f"{p.nodes} × {p.gpus_per_node}",
            str(p.batch_per_gpu),
            p.strategy,
            Text(formats.number(p.samples_per_second), "strong"),
            f"{formats.number(p.low)} to {formats.number(p.high)}",
            formats.percent(p.scaling_efficiency),
            formats.seconds(p.step.compute_seconds),
            formats.seconds(p.step.exposed_communication_seconds),
            formats.seconds(p.step.input_seconds),
            formats.seconds(p.step.straggler_seconds),
            _CHOKES[p.choke][0],
            formats.size(p.memory_bytes),
            "unknown" if p.fits is None else ("yes" if p.fits else Text("no", "bad")),
        ]
        for p in curve.predictions
    ]
    configurations = "configuration" if count == 1 else "configurations"
    precision = " or ".join(sorted({p.precision for p in curve.predictions}))
    title = f"Predicted for {curve.platform}{here} in {precision}: {count} {configurations}"
    return Table(title, columns, rows, folded=True)


def _epochs(workload: WorkloadResult) -> Table:
    epochs, here = epoch_table(workload), here_platform(workload)

    def head(platform: str, gpus: int, basis: str) -> str:
        unit = "worker" if platform == here else "GPU"
        return f"{platform}, {gpus} {unit}{'s' if gpus != 1 else ''}, {basis}"

    columns = [Column("batch per GPU")] + [
        Column(head(column.platform, column.gpus, column.basis)) for column in epochs.columns
    ]
    rows = [[str(batch), *map(formats.seconds, times)] for batch, times in epochs.rows]
    samples = formats.number(workload.samples_per_epoch)
    title = f"Time for an epoch of {samples} samples in {workload.precision}"
    return Table(title, columns, rows, folded=True)


def _method(result: StudyResult) -> list[Part]:
    facts = [
        ("Measured throughput",
         f"Real training steps on {result.host}, after warm-up, over several windows. The interval is "
         "the 95 % confidence interval of the mean over the windows."),
        ("Predicted throughput",
         "Per-GPU batch × GPUs ÷ step. A step is compute, plus the communication and input that do not "
         "hide behind it, plus waiting for the slowest worker. The interval holds 90 % of what the "
         "uncertainty of each part allows."),
        ("Compute",
         "A line in the batch size, t(b) = t₀ + b ÷ r, from the basis named for each platform below."),
        ("Exposed communication",
         "Measured: a step less a step without exchange of gradients. Predicted: gradients exchanged "
         "bucket by bucket on the slowest link while backward goes on; what is left over."),
        ("Scaling efficiency",
         "Throughput ÷ (GPUs × throughput of one GPU at the same batch per GPU)."),
        ("What a step waits for",
         "The part whose doubling in speed would shorten the step most. Past the knee, where an added GPU "
         "brings less than half of what one does alone, it is not the GPUs."),
        ("Doubtful runs",
         "Every run is judged: windows that differ by more than 20 %, other programs on the cores, a loss "
         "that is not a number or a speed beyond the hardware's make it doubtful. It is marked, left out of "
         "fits where there are credible runs, and no verdict stands on it."),
    ]  # fmt: skip
    if result.cost:
        facts.append(
            ("Break-even",
             "Price ÷ rent per hour. A speed lead is taken off the price for the rule of thumb alone; in "
             "all payments the price is whole, and the faster machine is under load for fewer hours. Over "
             "the horizon, the running costs that the study gives are in as well; what it does not give "
             "costs nothing.")
        )  # fmt: skip
    parts: list[Part] = [Facts(facts)]
    for workload in result.workloads:
        samples = formats.number(workload.samples_per_epoch)
        said = [f"Samples per epoch: {samples} ({workload.samples_note})"]
        if workload.measured:
            said.append(f"Measured runs were fed with: {workload.data_source}")
        said += [f"Compute on {curve.platform}: {curve.basis}" for curve in workload.curves]
        if workload.measured:
            ids = ", ".join(point.measurement_id for point in workload.measured)
            said.append(f"Measurements: {ids}")
        parts.append(Section(workload.name, [Items(said)]))
    if used := _constants(result):
        rows = [
            [x.name, formats.constant(x.value, x.unit), x.basis, x.source, ", ".join(platforms)]
            for x, platforms in used.items()
        ]
        title = f"Constants used: {len(used)}"
        columns = ("constant", "value", "basis", "source", "used for")
        parts.append(Table(title, columns, rows, folded=True))
    return parts


def _constants(result: StudyResult) -> dict[Constant, list[str]]:
    """Each constant once, with the platforms whose predictions it entered."""
    used: dict[Constant, list[str]] = {}
    for workload in result.workloads:
        for curve in workload.curves:
            for constant in curve.constants:
                platforms = used.setdefault(constant, [])
                if curve.platform not in platforms:
                    platforms.append(curve.platform)
    return used
