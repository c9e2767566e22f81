"""`gpuyard prices`: import a newer table of cloud prices, or restore the shipped one."""

from typing import Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show

app = typer.Typer(
    help="Update cloud prices; `gpuyard catalog prices` shows them.", no_args_is_help=True
)


@app.command()
def update(
    *,
    source: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE", help="CSV file, or its http(s) address."),
    ],
    older: Annotated[
        bool, typer.Option("--older", help="Use it even if it is older than the table in use.")
    ] = False,
    fewer: Annotated[
        bool,
        typer.Option("--fewer", help="Use it even if it has fewer prices than the table in use."),
    ] = False,
    large_changes: Annotated[
        bool,
        typer.Option(
            "--large-changes", help="Use it even if a price changes by a factor of 5 or more."
        ),
    ] = False,
    checksum: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="Use it only if this is its SHA-256 checksum."),
    ] = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Check a price table and use it from now on; it must have the columns of the shipped one.

    Example: gpuyard prices update --from prices.csv --dry-run
    """
    from gpuyard.api.prices import update_prices

    result = update_prices(
        source,
        older=older,
        fewer=fewer,
        large_changes=large_changes,
        checksum=checksum,
        dry_run=dry_run,
    )
    show(result.answer, json_output=json_output)


@app.command()
def reset(
    *,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Undo all updates, and use the shipped prices again.

    Example: gpuyard prices reset
    """
    from gpuyard.api.prices import reset_prices

    show(reset_prices(dry_run=dry_run).answer, json_output=json_output)
