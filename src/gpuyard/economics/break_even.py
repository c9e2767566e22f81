"""After how many hours of use a bought machine is cheaper than a rented one."""

from dataclasses import dataclass

from gpuyard.errors import UserMistake


@dataclass(frozen=True)
class BreakEven:
    """Renting by the hour against paying once."""

    rent_usd_per_hour: float
    buy_usd: float
    speed_lead: float
    hours_per_year: float

    @property
    def comparable_buy_usd(self) -> float:
        """The price of as much work as the rented machine does.

        A bought machine that is 30 % faster does the same work for 30 % less of its price, which is
        how the founding comparison discounts $8,000 to $5,600.
        """
        return self.buy_usd * (1 - self.speed_lead)

    @property
    def break_even_hours(self) -> float:
        """Rented hours that cost as much as buying."""
        return self.comparable_buy_usd / self.rent_usd_per_hour

    @property
    def break_even_years(self) -> float:
        """The same at the stated use."""
        return self.break_even_hours / self.hours_per_year

    def rented_usd(self, years: float) -> float:
        """What renting has cost after so many years of the stated use."""
        return self.rent_usd_per_hour * self.hours_per_year * years


def break_even(
    rent_usd_per_hour: float, buy_usd: float, hours_per_year: float, speed_lead: float = 0.0
) -> BreakEven:
    """Renting against buying, with the inputs checked."""
    if not 0 < hours_per_year <= 8784:
        raise UserMistake(f"{hours_per_year:g} hours a year: it is above 0 and up to 8,784")
    if rent_usd_per_hour <= 0:
        raise UserMistake(
            "the rent must be above $0 an hour: what is free to rent is never worth buying"
        )
    if not 0 <= speed_lead < 1:
        raise UserMistake("the speed lead must be at least 0 % and below 100 %")
    return BreakEven(rent_usd_per_hour, buy_usd, speed_lead, hours_per_year)
