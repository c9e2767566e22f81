"""Shows which prices an imported price table changes."""

import datetime
from typing import Any

from gpuyard.catalog.price_update import PriceUpdate
from gpuyard.report.answer import Answer, Part, Sentence, Table

_MAX_SHOWN = 20


def price_update_answer(
    update: PriceUpdate,
    old_date: datetime.date,
    new_date: datetime.date,
    size: str,
    document: dict[str, Any],
) -> Answer:
    """Show the changed prices with the dates of both tables, and count what was added and removed."""
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
    use = "are in use from now on" if document["stored"] else "would be used"
    parts.append(
        Sentence(
            f"{update.rows:,} prices up to {new_date} {use}: {len(update.added)} added, "
            f"{len(update.removed)} removed, {len(update.changed)} changed ({size})."
        )
    )
    return Answer(parts, document, verb="prices")
