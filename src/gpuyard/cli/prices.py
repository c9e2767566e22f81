"""`gpuyard prices`: take in a newer table of cloud prices, or go back to the shipped one."""

from typing import Annotated

import typer

from gpuyard.cli.options import DryRunOption, JsonOption, console, print_json, print_table

app = typer.Typer(
    help="Take in newer cloud prices; `gpuyard catalog prices` shows them.", no_args_is_help=True
)
_MOST_SHOWN = 20


@app.command()
def update(
    *,
    source: Annotated[
        str, typer.Option("--from", help="A CSV file, or an http(s) address of one.")
    ],
    older: Annotated[
        bool, typer.Option("--older", help="Take it even if it is older than what is in use.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Check a table of prices and use it from now on; it has the columns of the shipped one.

    Example: gpuyard prices update --from prices.csv --dry-run
    """
    from dataclasses import asdict

    from gpuyard import paths, units
    from gpuyard.catalog import prices
    from gpuyard.catalog.price_update import compare_tables, read_source
    from gpuyard.catalog.prices import newest_date, read_price_table
    from gpuyard.errors import UserMistake
    from gpuyard.files import write_text

    text = read_source(source)
    before, after = prices(), read_price_table(text, source)
    was, becomes = newest_date(before), newest_date(after)
    if becomes < was and not older:
        raise UserMistake(
            f"{source}: its newest price is of {becomes}, the table in use has one of {was}; "
            "take it with --older"
        )
    found = compare_tables(before, after)
    if not dry_run:
        write_text(paths.prices_file(), text)
    if json_output:
        dates = {"before": was.isoformat(), "after": becomes.isoformat()}
        print_json({"stored": not dry_run, "newest_price": dates, **asdict(found)})
        return
    if found.changed:
        print_table(
            f"Changed prices, $/h: {len(found.changed)}",
            ["instance", str(was), str(becomes), "change"],
            [
                [
                    change.id,
                    f"{change.before_usd_per_hour:.2f}",
                    f"{change.after_usd_per_hour:.2f}",
                    f"{100 * (change.after_usd_per_hour / change.before_usd_per_hour - 1):+.0f} %",
                ]
                for change in found.changed[:_MOST_SHOWN]
            ],
        )
    out = console()
    left = len(found.changed) - _MOST_SHOWN
    if left > 0:
        out.print(f"and {left} more; --json has all", highlight=False)
    what = "would be used" if dry_run else "in use from now on"
    out.print(
        f"{found.rows:,} prices up to {becomes} {what}: {len(found.added)} added, "
        f"{len(found.removed)} gone, {len(found.changed)} changed "
        f"({units.format_bytes(len(text.encode()))})",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def reset(
    *,
    dry_run: DryRunOption = False,
) -> None:
    """Undo every update: use the prices that came with gpuyard again.

    Example: gpuyard prices reset
    """
    from gpuyard import paths
    from gpuyard.catalog.prices import newest_date, shipped_prices
    from gpuyard.errors import GpuyardError

    path = paths.prices_file()
    shipped = f"the shipped prices up to {newest_date(shipped_prices())}"
    if not path.exists():
        message = f"nothing to undo: {shipped} are in use"
    elif dry_run:
        message = f"{path} would be removed; then {shipped} are in use"
    else:
        try:
            path.unlink()
        except OSError as error:
            raise GpuyardError(f"{path} can't be removed: {error.strerror}") from None
        message = f"{shipped} are in use again"
    console().print(message, highlight=False, markup=False, soft_wrap=True)
