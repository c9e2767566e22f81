"""The errors as Markdown tables for the docs, so that the page can't drift from the command."""

from collections.abc import Iterable

from gpuyard.predict.validation import Report, Score


def markdown(found: Report) -> str:
    """Training tables with the two formulas beside them, then one GPU, then bare all-reduces."""
    every = found.training
    lines = [
        "| table | rows | mean | median | 90th | worst | bias | inside | interval | perfect scaling | no overlap |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, scored in every.tables.items():
        formulas = (scored.perfect_scaling, scored.no_overlap)
        lines.append(_row(f"`{name}`", scored.score, formulas))
    lines.append(_row("average", every.overall, (every.perfect_scaling, every.no_overlap)))
    if found.lab is not None:
        formulas = (found.lab.perfect_scaling, found.lab.no_overlap)
        lines.append(_row("our lab (not in the average)", found.lab.score, formulas))
    lines += _short("one GPU", found.single_gpu.items())
    lines += _short("all-reduce", found.all_reduces.items())
    return "\n".join(lines) + "\n"


def _row(name: str, score: Score, formulas: Iterable[Score]) -> str:
    inside, width = score.inside_interval or 0.0, score.median_interval_width or 0.0
    cells = [name, *_cells(score), f"{100 * inside:.0f} %", f"±{100 * width:.1f} %"]
    cells += [f"{100 * formula.mean_abs_error:.1f} %" for formula in formulas]
    return "| " + " | ".join(cells) + " |"


def _short(what: str, scores: Iterable[tuple[str, Score]]) -> list[str]:
    head = [
        "",
        f"| {what} | rows | mean | median | 90th | worst | bias |",
        "| --- |" + " --- |" * 6,
    ]
    return head + ["| " + " | ".join([name, *_cells(score)]) + " |" for name, score in scores]


def _cells(score: Score) -> list[str]:
    errors = (score.mean_abs_error, score.median_abs_error, score.p90_abs_error,
              score.worst_abs_error)  # fmt: skip
    return [
        f"{score.rows:,}",
        *(f"{100 * error:.1f} %" for error in errors),
        f"{100 * score.bias:+.1f} %",
    ]
