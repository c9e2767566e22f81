"""Cloud prices: import a newer table, or return to the shipped one."""

import datetime
import hashlib
from dataclasses import asdict

from gpuyard import files, units
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog import prices
from gpuyard.catalog.price_update import (
    PriceUpdate,
    check_not_in_future,
    check_plausible,
    compare_tables,
    read_source,
)
from gpuyard.catalog.prices import newest_date, read_price_table, shipped_prices
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import create_parent, write_text
from gpuyard.report.answer import Answer, Sentence
from gpuyard.report.answers.prices import price_update_answer


def update_prices(
    source: str,
    *,
    older: bool = False,
    fewer: bool = False,
    large_changes: bool = False,
    checksum: str | None = None,
    dry_run: bool = False,
) -> Result[Row]:
    """Check a price table, a CSV file or its address, and use it from now on; each row is a changed price.

    It is refused if it is older than the table in use, has fewer prices, or changes one by a factor of 5 or more; `older`,
    `fewer`, and `large_changes` allow that.
    """
    text = read_source(source, checksum)
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
    if not (fewer or dry_run):
        _check_not_fewer(source, changes, len(before))
    if not (large_changes or dry_run):
        _check_no_large_change(source, changes)
    if not dry_run:
        write_text(create_parent(files.prices_file()), text)
    content = text.encode()
    document = {
        "stored": not dry_run,
        "newest_price": {"before": old_date.isoformat(), "after": new_date.isoformat()},
        "sha256": hashlib.sha256(content).hexdigest(),
        **asdict(changes),
    }
    size = units.format_bytes(len(content))
    answer = price_update_answer(changes, old_date, new_date, size, document)
    return Result(answer, wrap(document["changed"]))


def reset_prices(*, dry_run: bool = False) -> Result[Row]:
    """Undo all updates, and use the shipped prices again."""
    path = files.prices_file()
    shipped = f"the shipped prices up to {newest_date(shipped_prices())}"
    removed = path.exists() and not dry_run
    if not path.exists():
        message = f"Nothing to undo: {shipped} are in use."
    elif dry_run:
        message = f"{path} would be removed; then {shipped} are in use."
    else:
        try:
            path.unlink()
        except OSError as error:
            raise GpuyardError(f"{path} cannot be removed: {error.strerror}") from None
        message = f"{shipped[0].upper()}{shipped[1:]} are in use again."
    document = {"removed": str(path) if removed else None}
    return Result(Answer([Sentence(message)], document, verb="prices"))


def _check_not_fewer(source: str, changes: PriceUpdate, before: int) -> None:
    if changes.rows < before:
        raise UserMistake(
            f"{source}: it has {changes.rows:,} prices, and the table in use has {before:,}: "
            f"{len(changes.removed):,} would be lost; check it with --dry-run, or add --fewer"
        )


def _check_no_large_change(source: str, changes: PriceUpdate) -> None:
    large = [change for change in changes.changed if change.is_large]
    if large:
        first = large[0]
        raise UserMistake(
            f"{source}: {units.format_count(len(large), 'price')} would change by a factor of 5 or more "
            f"({first.id} from ${first.before_usd_per_hour:g} to ${first.after_usd_per_hour:g} per hour); "
            "check it with --dry-run, or add --large-changes"
        )
