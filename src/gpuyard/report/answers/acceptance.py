"""The answer of `gpuyard accept`: the verdict, a table of nodes, the findings with their cost, and all pairs."""

from collections.abc import Iterator

from gpuyard.measure.acceptance.records import Acceptance, Check, Grade, PairRate
from gpuyard.measure.acceptance.tables import build_nodes_table
from gpuyard.report.answer import (
    Answer,
    Bullets,
    Column,
    DefinitionList,
    Part,
    RendererOnly,
    Section,
    Sentence,
    Table,
    Text,
    Tone,
)
from gpuyard.units import (
    format_bit_rate,
    format_bytes,
    format_count,
    format_interval,
    format_per_second,
    format_seconds,
    format_share,
    format_usd,
)

_TONES: dict[Grade, Tone] = {"pass": "good", "warn": "caution", "fail": "bad"}


def acceptance_answer(run: Acceptance) -> Answer:
    """Show the record of an acceptance run."""
    parts: list[Part] = [
        Sentence(_write_headline(run), "good" if run.accepted else "bad"),
        _color_grades(build_nodes_table(run)),
    ]
    if run.all_findings:
        parts.append(_build_findings(run))
        parts.append(Bullets([f"{_name(check)}: {check.next_step}." for check in run.all_findings]))
    parts += _build_whole(run)
    if run.pairs:
        parts.append(RendererOnly("page", [_build_pairs(run)]))
        parts.append(RendererOnly("page", [_build_parts(run)]))
    parts += [Sentence(f"Left out: {what}.", "caution") for what in run.left_out]
    parts += [Sentence(note, "quiet") for note in run.notes]
    document = run.as_json()
    findings = [f for node in document["nodes"] for f in node["findings"]] + document["findings"]
    for finding, check in zip(findings, run.all_findings, strict=True):
        finding["usd_per_day"] = run.usd_per_day(check)
    return Answer(
        parts,
        document,
        title=f"Acceptance of {run.cluster}",
        verb="accept",
        rows="nodes",
        meta=f"{run.created_minute} UTC, {format_count(len(run.nodes), 'node')}, run {run.id}",
    )


def _write_headline(run: Acceptance) -> str:
    failed, warned = run.faulty(), run.faulty("warn")
    warnings = f" Look at {', '.join(warned)} too." if warned else ""
    if run.accepted and run.left_out:
        phases = " and ".join(what.partition(":")[0] for what in run.left_out)
        return f"Accepted as far as it was checked: {phases} did not fit into the time.{warnings}"
    if run.accepted:
        return (
            f"Accepted: all {format_count(len(run.nodes), 'node')} do what they should.{warnings}"
        )
    if failed:
        nodes = (
            f"{len(failed)} of {format_count(len(run.nodes), 'node')} failed: {', '.join(failed)}."
        )
    else:
        nodes = "the nodes pass, but the cluster does not."
    usd = max((run.usd_per_day(c) or 0.0 for c in run.all_findings if c.grade == "fail"), default=0)
    cost = f" The worst fault costs up to {format_usd(usd)} a day." if usd else ""
    return f"Not accepted: {nodes}{cost}{warnings}"


def _color_grades(table: Table) -> Table:
    rows = [[*row[:-1], _color(str(row[-1]))] for row in table.rows]
    return Table(table.title, table.columns, rows, table.note)


def _color(grade: str) -> Text:
    return Text(grade, next(tone for name, tone in _TONES.items() if name == grade))


def _name(check: Check) -> str:
    return f"{check.node or 'Cluster'}, {check.subject}"


def _build_findings(run: Acceptance) -> Table:
    priced = run.price is not None and any(run.usd_per_day(c) for c in run.all_findings)
    note = ""
    if priced and run.price is not None:
        note = (
            f"Cost per day of a job on all nodes, at most, at {format_usd(run.price.usd_per_hour)} an hour "
            f"for the cluster ({run.price.basis}). To leave a node out costs "
            f"{format_usd(24 * run.price.usd_per_hour / max(1, len(run.nodes)))} a day."
        )
    return Table(
        "Findings",
        ["where", "what", *([Column("per day", 1)] if priced else []), "grade"],
        [
            [
                check.node or "cluster",
                f"{check.subject}: {check.text}",
                *([_format_cost(run, check)] if priced else []),
                _color(check.grade),
            ]
            for check in sorted(
                run.all_findings, key=lambda c: list(_TONES).index(c.grade), reverse=True
            )
        ],
        note,
    )


def _format_cost(run: Acceptance, check: Check) -> str:
    usd = run.usd_per_day(check)
    return "" if usd is None else format_usd(usd)


def _build_whole(run: Acceptance) -> Iterator[Part]:
    facts: list[tuple[str, str]] = []
    if run.whole is not None:
        whole = run.whole
        facts.append(
            (
                f"all-reduce of {format_bytes(whole.bytes)}, {whole.ranks} ranks",
                f"{format_seconds(whole.seconds)}, predicted {format_seconds(whole.expected_seconds)} "
                f"({format_share(whole.ratio)} of the predicted speed)",
            )
        )
    if run.training is not None:
        step = run.training
        gpu = f", emulated {step.gpu}" if step.gpu else ""
        facts.append(
            (
                f"{step.workload} on {step.workers} workers{gpu}",
                f"{format_per_second(step.samples_per_second)} samples/s, predicted "
                f"{format_per_second(step.predicted)} ({format_interval(step.low, step.high)})",
            )
        )
    if facts:
        yield DefinitionList(facts, "All nodes together")


def _build_pairs(run: Acceptance) -> Section:
    reached = [node.name for node in run.nodes if node.inventory is not None]

    def format_row(rate: PairRate) -> list[str]:
        expected = run.expected_link_bytes_per_second
        return [
            reached[rate.a],
            reached[rate.b],
            format_bit_rate(rate.forward),
            format_bit_rate(rate.backward),
            "" if expected is None else format_share(rate.slower / expected),
        ]

    columns = ["node", "other node", "forward", "backward", "of expected"]
    table = Table("", columns, [format_row(rate) for rate in run.pairs])
    return Section("Pairs of nodes", [table], folded=True)


def _build_parts(run: Acceptance) -> Section:
    columns = ["node", "CPU", "cores", "memory", "GPUs", "driver", "disks", "network", "kernel"]
    rows = []
    for node in run.nodes:
        if (parts := node.inventory) is None:
            continue
        models = sorted({gpu.name or "GPU" for gpu in parts.gpus})
        rows.append(
            [
                node.name,
                parts.cpu_model,
                str(parts.cores),
                format_bytes(parts.memory_bytes),
                f"{len(parts.gpus)} × {' + '.join(models)}" if parts.gpus else "none",
                parts.driver or "",
                ", ".join(f"{disk.name} {format_bytes(disk.bytes)}" for disk in parts.disks),
                ", ".join(nic.name for nic in parts.nics),
                parts.kernel,
            ]
        )
    return Section("Parts of the nodes", [Table("", columns, rows)], folded=True)
