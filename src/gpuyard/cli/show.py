"""Print an answer as tables or JSON, and write its page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.api.result import Result
    from gpuyard.report.answer import Answer

_wide = False
_format = "json"


def show(answer: "Answer", *, json_output: bool = False, html: Path | None = None) -> None:
    """Print the answer as tables or JSON, and write its HTML page if requested."""
    if html is not None:
        from gpuyard.report.html import write_page
        from gpuyard.report.kept import keep_report

        write_page(answer, html)
        keep_report(answer, sys.argv[1:])
    if json_output:
        write_document(answer.document, answer.list_rows(), answer.columns)
    else:
        from gpuyard.report.terminal import print_answer

        print_answer(answer, wide=_wide)
    if html is not None:
        from gpuyard.report.terminal import print_line

        print_line(f"Wrote {html}.")


def show_with_drawing(result: "Result[Any]", svg: Path | None, *, json_output: bool) -> None:
    """Print the answer of a result, and write its drawing if requested."""
    if svg is not None:
        from gpuyard.files import write_text

        write_text(svg, result.svg())
    show(result.answer, json_output=json_output)
    if svg is not None:
        from gpuyard.report.terminal import print_line

        print_line(f"Wrote {svg}.")


def write_document(document: Any, rows: Any = None, columns: "Sequence[str]" = ()) -> None:
    """Print a document as JSON, or in the format of `-o`; CSV has its rows."""
    if _format == "json":
        from gpuyard.report.answer import format_json

        text = format_json(document)
    elif _format == "yaml":
        from gpuyard.report.export import format_yaml

        text = format_yaml(document)
    else:
        from gpuyard.report.export import format_csv

        text = format_csv(document if rows is None else rows, columns)
    sys.stdout.write(text)


def choose_format(name: str) -> None:
    """Let `write_document` print YAML or CSV instead of JSON."""
    global _format  # noqa: PLW0603 - a process runs one command line
    _format = name


def choose_width(wide: bool) -> None:
    """Let `show` keep all columns of tables, however narrow the terminal is."""
    global _wide  # noqa: PLW0603 - a process runs one command line
    _wide = wide
