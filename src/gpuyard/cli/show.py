"""Print an answer as tables or JSON, and write its page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuyard.report.answer import Answer

_wide = False


def show(answer: "Answer", *, json_output: bool = False, html: Path | None = None) -> None:
    """Print the answer as tables or JSON, and write its HTML page if requested."""
    from gpuyard.report.answer import format_json

    if html is not None:
        from gpuyard.report.html import write_page

        write_page(answer, html)
    if json_output:
        sys.stdout.write(format_json(answer.document))
    else:
        from gpuyard.report.terminal import print_answer

        print_answer(answer, wide=_wide)
    if html is not None:
        from gpuyard.report.terminal import print_line

        print_line(f"Wrote {html}.")


def choose_width(wide: bool) -> None:
    """Let `show` keep all columns of tables, however narrow the terminal is."""
    global _wide  # noqa: PLW0603 - a process runs one command line
    _wide = wide
