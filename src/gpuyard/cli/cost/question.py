"""What `gpuyard cost` was asked, as the two comparisons that answer it."""

import datetime
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuyard.cli.cost.owning import Rent
from gpuyard.economics.ownership import Owned
from gpuyard.economics.rent_or_own import BreakEven, RentOrOwn, break_even
from gpuyard.economics.reserved import Rest, unused_years
from gpuyard.economics.sensitivity import ranges_around
from gpuyard.errors import UserMistake, describe_unknown


@dataclass(frozen=True)
class Asked:
    """What was asked for, read and checked."""

    rent: Rent
    owned: Owned
    hours_per_year: float
    speed_lead: float
    months: int
    term_months: int
    rest: str | None
    resale: float
    discount_per_year: float
    detailed: bool
    tornado: bool
    draws: int | None
    seed: int
    swing: float
    vary: tuple[str, ...]
    given_on: datetime.date

    @cached_property
    def simple(self) -> BreakEven:
        """The purchase alone against the rent."""
        hourly = self.rent.usd_per_hour
        if self.rent.usd_per_year and self.hours_per_year > 0:
            hourly = self.rent.usd_per_year / self.hours_per_year
        return break_even(
            hourly, float(np.asarray(self.owned.hardware_usd)), self.hours_per_year, self.speed_lead
        )

    @cached_property
    def case(self) -> RentOrOwn:
        """Everything over the horizon."""
        return RentOrOwn(
            self.owned,
            rent_usd_per_hour=self.rent.usd_per_hour,
            hours_per_year=self.hours_per_year,
            reserved_usd_per_year=self.rent.usd_per_year,
            rest_years=self._rest_years,
            rest_resold=self.resale if self.rest == "resell" else 0.0,
            speed_lead=self.speed_lead,
            discount_per_year=self.discount_per_year,
            months=self.months,
        )

    @property
    def prices(self) -> str:
        """Of which day the prices are."""
        if self.rent.date is None:
            return f"Prices as given on {self.given_on}"
        return f"Rent of {self.rent.words} on {self.rent.date}, other prices as given on {self.given_on}"

    def ranges(self) -> dict[str, tuple[float, float]]:
        found = ranges_around(self.case, self.swing)
        known = self.case.inputs()
        for text in self.vary:
            name, _, span = text.partition("=")
            low, dots, high = span.partition("..")
            if name not in known:
                raise UserMistake(describe_unknown("input", name, known))
            try:
                found[name] = (float(low), float(high))
            except ValueError:
                dots = ""
            if not dots:
                raise UserMistake(f"{text!r} is not a range; write it like {name}=1.0..1.8")
        return found

    @property
    def _rest_years(self) -> float:
        """Of the last term, after the horizon."""
        if not self.rent.usd_per_year or not self.detailed:
            return 0.0
        if self.rest not in (None, "pay", "resell"):
            raise UserMistake(describe_unknown("value of --rest", self.rest, ["pay", "resell"]))
        rest: Rest | None = self.rest  # type: ignore[assignment]
        return float(unused_years(self.months / 12, self.term_months / 12, rest))
