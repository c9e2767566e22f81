"""`gpuyard validate`: predictions against every published table that ships."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import JsonOption, console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.predict.validation import Report, Score


def validate(
    *,
    table: Annotated[
        str | None, typer.Option(help="Only this published table.", metavar="NAME")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with a scatter of every table.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Predict every published row from the one-GPU figure of its own table, and print the errors.

    Example: gpuyard validate --table pollux_t4
    """
    from gpuyard.predict.validation import report

    found = report(table)
    if html is not None:
        from gpuyard.report.validation_page import write_validation

        write_validation(found, html)
        console(stderr=True).print(f"Wrote {html}.", highlight=False)
    if json_output:
        print_json(found.as_json())
        return
    _print(found)


def _print(found: "Report") -> None:
    errors = [
        [name, *_cells(scored.score), _share(scored.perfect_scaling.mean_abs_error),
         _share(scored.no_overlap.mean_abs_error)]
        for name, scored in found.training.tables.items()
    ]  # fmt: skip
    overall = found.training
    errors.append(
        ["average of the tables", *_cells(overall.overall),
         _share(overall.perfect_scaling.mean_abs_error), _share(overall.no_overlap.mean_abs_error)]
    )  # fmt: skip
    if found.lab is not None:
        errors.append(
            ["our lab (not in it)", *_cells(found.lab.score),
             _share(found.lab.perfect_scaling.mean_abs_error),
             _share(found.lab.no_overlap.mean_abs_error)]
        )  # fmt: skip
    columns = ["table", "rows", "mean", "median", "90th", "worst", "bias", "inside", "interval"]
    print_table(
        "Errors of predicted throughput",
        [*columns, "perfect scaling", "no overlap"],
        errors,
    )
    if found.single_gpu:
        print_table(
            "One GPU without a measurement of it",
            columns[:7],
            [[name, *_cells(score)[:6]] for name, score in found.single_gpu.items()],
        )
        print_table(
            "Bandwidth of timed all-reduces",
            columns[:7],
            [[name, *_cells(score)[:6]] for name, score in found.all_reduces.items()],
        )
    skipped = [
        [name, str(rows), reason]
        for name, scored in found.training.tables.items()
        for reason, rows in scored.skipped
    ]
    if skipped:
        print_table("Rows left out", ["table", "rows", "why"], skipped)
    console().print(found.method, highlight=False)


def _cells(score: "Score") -> list[str]:
    width = score.median_interval_width
    return [
        f"{score.rows:,}",
        *map(_share, (score.mean_abs_error, score.median_abs_error, score.p90_abs_error)),
        _share(score.worst_abs_error),
        f"{100 * score.bias:+.1f} %".replace("-", "−").replace("+", ""),
        "" if score.inside_interval is None else _share(score.inside_interval),
        "" if width is None else f"±{100 * width:.1f} %",
    ]


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
