"""`gpuyard prices`: import a newer table of cloud prices, or restore the shipped one."""

import datetime
import hashlib
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show

if TYPE_CHECKING:
    from gpuyard.catalog.price_update import PriceUpdate
    from gpuyard.report.answer import Answer

app = typer.Typer(
    help="Update cloud prices; `gpuyard catalog prices` shows them.", no_args_is_help=True
)
_MAX_SHOWN = 20


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
    sha256: Annotated[
        str | None,
        typer.Option(
            "--checksum", metavar="HEX", help="Use it only if this is its SHA-256 checksum."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Check a price table and use it from now on; it must have the columns of the shipped one.

    Example: gpuyard prices update --from prices.csv --dry-run
    """
    from gpuyard import files
    from gpuyard.catalog import prices
    from gpuyard.catalog.price_update import (
        check_not_in_future,
        check_plausible,
        compare_tables,
        read_source,
    )
    from gpuyard.catalog.prices import newest_date, read_price_table
    from gpuyard.errors import UserMistake
    from gpuyard.files import create_parent, write_text

    text = read_source(source, sha256)
    before, after = prices(), read_price_table(text, source)
    check_not_in_future(after, source, datetime.date.today())
    check_plausible(after, source)
    old_date, new_date = newest_date(before), newest_date(after)
    if new_date < old_date and not older:
        raise UserMistake(
            f"{source}: its newest price is from {new_date}, that of the table in use from {old_date}; "
            "to use it anyway, add --older"
        )
    changes = compare_tables(before, after)
    if len(after) < len(before) and not (fewer or dry_run):
        raise UserMistake(
            f"{source}: it has {len(after):,} prices, and the table in use has {len(before):,}: "
            f"{len(changes.removed):,} would be lost; check it with --dry-run, or add --fewer"
        )
    large = [change for change in changes.changed if change.is_large]
    if large and not (large_changes or dry_run):
        first = large[0]
        raise UserMistake(
            f"{source}: {len(large):,} price{'' if len(large) == 1 else 's'} would change by a factor of 5 or more "
            f"({first.id} from ${first.before_usd_per_hour:g} to ${first.after_usd_per_hour:g} per hour); "
            "check it with --dry-run, or add --large-changes"
        )
    if not dry_run:
        write_text(create_parent(files.prices_file()), text)
    answer = _build_answer(changes, old_date, new_date, text, stored=not dry_run)
    show(answer, json_output=json_output)


def _build_answer(
    update: "PriceUpdate",
    old_date: datetime.date,
    new_date: datetime.date,
    text: str,
    *,
    stored: bool,
) -> "Answer":
    from dataclasses import asdict

    from gpuyard import units
    from gpuyard.report.answer import Answer, Part, Sentence, Table

    parts: list[Part] = []
    if update.changed:
        more = len(update.changed) - _MAX_SHOWN
        parts.append(
            Table(
                f"Changed prices, $/h: {len(update.changed)}",
                ["instance", str(old_date), str(new_date), "change"],
                [
                    [
                        change.id,
                        f"{change.before_usd_per_hour:.2f}",
                        f"{change.after_usd_per_hour:.2f}",
                        f"{100 * (change.after_usd_per_hour / change.before_usd_per_hour - 1):+.0f}%",
                    ]
                    for change in update.changed[:_MAX_SHOWN]
                ],
                note=f"{more} more with --json" if more > 0 else "",
            )
        )
    use = "are in use from now on" if stored else "would be used"
    parts.append(
        Sentence(
            f"{update.rows:,} prices up to {new_date} {use}: {len(update.added)} added, "
            f"{len(update.removed)} removed, {len(update.changed)} changed "
            f"({units.format_bytes(len(text.encode()))})."
        )
    )
    dates = {"before": old_date.isoformat(), "after": new_date.isoformat()}
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Answer(
        parts, {"stored": stored, "newest_price": dates, "sha256": sha256, **asdict(update)}
    )


@app.command()
def reset(
    *,
    dry_run: DryRunOption = False,
) -> None:
    """Undo all updates, and use the shipped prices again.

    Example: gpuyard prices reset
    """
    from gpuyard import files
    from gpuyard.catalog.prices import newest_date, shipped_prices
    from gpuyard.errors import GpuyardError
    from gpuyard.report.terminal import print_line

    path = files.prices_file()
    shipped = f"the shipped prices up to {newest_date(shipped_prices())}"
    if not path.exists():
        message = f"nothing to undo: {shipped} are in use"
    elif dry_run:
        message = f"{path} would be removed; then {shipped} are in use"
    else:
        try:
            path.unlink()
        except OSError as error:
            raise GpuyardError(f"{path} cannot be removed: {error.strerror}") from None
        message = f"{shipped} are in use again"
    print_line(f"{message[0].upper()}{message[1:]}.", stderr=False)
