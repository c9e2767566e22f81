"""What machines to train on are sold as: laptop, workstation, server, cluster, and between what they cost."""

import datetime
import functools

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.catalog.prices import chassis, gpu_prices
from gpuyard.catalog.tables import Fact, FactTable, read_toml


class TierPrice(BaseModel):
    """A price, or machines from parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: float | None = Field(default=None, gt=0)
    machine: str | None = None
    count: int = Field(default=1, gt=0)

    @model_validator(mode="after")
    def _one_of_both(self) -> "TierPrice":
        if (self.usd is None) == (self.machine is None):
            raise ValueError("a price of a tier is either in dollars or that of a machine")
        return self

    @property
    def total_usd(self) -> float:
        return self.count * build_price(self.machine)[0] if self.machine else self.usd or 0.0

    @property
    def words(self) -> str:
        """What is had for it, where it is made from parts."""
        many = f"{self.count} × " if self.count > 1 else ""
        return f"{many}{self.machine}" if self.machine else ""

    @property
    def oldest(self) -> datetime.date | None:
        """Of the prices that it is made of."""
        return build_price(self.machine)[1] if self.machine else None


class Tier(Fact):
    """A kind of machine that is sold."""

    name: str
    gpus: str
    purpose: str = Field(alias="for")
    least: TierPrice
    most: TierPrice

    @property
    def price_date(self) -> datetime.date:
        """The oldest that its prices stand on."""
        return min(filter(None, (self.least.oldest, self.most.oldest)), default=self.date)


def build_price(build: str) -> tuple[float, datetime.date]:
    """Of a machine from parts ("server-sxm/8x-h100-sxm5-80gb"), and the date of its oldest part."""
    box, _, rest = build.partition("/")
    count, _, gpu = rest.partition("x-")
    around, card = chassis().get(box), gpu_prices().get(gpu)
    return around.usd + int(count) * card.usd, min(around.date, card.date)


@functools.cache
def tiers() -> FactTable[Tier]:
    return read_toml("tier", Tier, "tiers.toml")
