"""Shows what a bench of the API measures: its plan for a dry run, otherwise its progress and its result."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cli.output import progress_bar, show, show_if_not_stored

if TYPE_CHECKING:
    from gpuyard.api.result import Result


def run_bench(
    run: "Callable[..., Result[Any]]",
    *,
    dry_run: bool,
    json_output: bool,
    html: Path | None = None,
    document: Callable[[Any], Any] = lambda record: record,
) -> "Result[Any] | None":
    """Run and show a bench, and return its result; a dry run shows the plan and returns None.

    `document` wraps a record that could not be stored like the bench's own JSON does.
    """
    with (
        show_if_not_stored(json_output=json_output, document=document),
        progress_bar() as on_progress,
    ):
        result = run(dry_run=dry_run, on_progress=on_progress)
    show(result.answer, json_output=json_output, html=None if dry_run else html)
    return None if dry_run else result
