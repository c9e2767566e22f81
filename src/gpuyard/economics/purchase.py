"""The price of a machine to buy: a quote, a range, or the catalog's estimate, with what it rests on."""

import datetime
from dataclasses import dataclass

from gpuyard import units
from gpuyard.catalog import machines
from gpuyard.catalog.prices import priced_machine_ids
from gpuyard.catalog.tiers import price_build
from gpuyard.errors import BadQuantity, UserMistake, describe_unknown

OLD_YEARS = 2
"""A price that is older than this is called old."""


@dataclass(frozen=True)
class Purchase:
    """A purchase price and the range in which it may be."""

    usd: float
    usd_low: float
    usd_high: float
    machine: str = ""  # a catalog machine, or one built from parts
    date: datetime.date | None = None  # of its oldest part; None: given by the user

    @property
    def is_range(self) -> bool:
        return self.usd_low < self.usd_high

    def describe_basis(self, newest: datetime.date) -> str:
        """Describe the basis of this price for a decision; empty for a price that the user gives.

        `newest` is the date of the newest price that it is compared with.
        """
        if self.date is None:
            return ""
        if self.is_range:
            low, high = units.format_usd(self.usd_low), units.format_usd(self.usd_high)
            return f"an estimated price: {low} to {high} for {self.machine}, the oldest part of {self.date}"
        return f"the price of {self.machine}{describe_age(self.date, newest)}"


def describe_age(date: datetime.date, newest: datetime.date) -> str:
    """Return " of DATE", and how much older than the newest price it is if it is old."""
    years = (newest - date).days / 365.25
    age = f", {units.format_years(round(years))} older than the newest in the catalog"
    return f" of {date}{age if years > OLD_YEARS else ''}"


def parse_purchase(text: str) -> Purchase:
    """Parse "$8000", "$7000..$9000", a machine with a list price, or one built from parts."""
    low, dots, high = text.partition("..")
    try:
        if not dots:
            usd = units.parse_usd(text)
            return Purchase(usd, usd, usd)
        ends = units.parse_usd(low), units.parse_usd(high)
    except BadQuantity:
        if text[:1].isalpha() and "-" in text:  # like every machine of the catalog
            return price_machine(text)
        raise UserMistake(
            f"{text!r} is not a purchase price; write it like '$8000', '$7000..$9000', or "
            "server-sxm5/8x-h100-sxm5-80gb"
        ) from None
    if ends[0] > ends[1]:
        raise UserMistake(f"the purchase price {text!r} goes from high to low")
    return Purchase(sum(ends) / 2, *ends)


def price_machine(name: str) -> Purchase:
    """Return the catalog's price of a machine: a list price, or the sum of its parts."""
    if name in machines():
        machine = machines().get(name)
        if machine.price_usd is None:
            raise UserMistake(f"{name} has no list price in the catalog; give its price in dollars")
        return Purchase(machine.price_usd, machine.price_usd, machine.price_usd, name, machine.date)
    if name not in priced_machine_ids():
        raise UserMistake(describe_unknown("machine with a price", name, priced_machine_ids()))
    built = price_build(name)
    return Purchase(built.usd, built.usd_low, built.usd_high, name, built.date)
