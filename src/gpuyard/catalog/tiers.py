"""The tiers of training machines (laptop, workstation, server, cluster) and their price ranges."""

import datetime
import functools

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.catalog.prices import PurchasePrice, chassis, gpu_prices
from gpuyard.catalog.tables import Fact, FactTable, read_toml


class TierPrice(BaseModel):
    """One end of a tier's price range: an amount, or the price of machines built from parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: float | None = Field(default=None, gt=0)
    machine: str | None = None
    count: int = Field(default=1, gt=0)

    @model_validator(mode="after")
    def _check_usd_or_machine(self) -> "TierPrice":
        if (self.usd is None) == (self.machine is None):
            raise ValueError("a tier's price needs either 'usd' or 'machine'")
        return self

    @property
    def total_usd(self) -> float:
        return self.count * price_build(self.machine).usd if self.machine else self.usd or 0.0

    @property
    def description(self) -> str:
        """The machines that this price buys, if it has any."""
        multiple = f"{self.count} × " if self.count > 1 else ""
        return f"{multiple}{self.machine}" if self.machine else ""

    @property
    def oldest(self) -> datetime.date | None:
        """The oldest date among the prices of its parts."""
        return price_build(self.machine).date if self.machine else None


class Tier(Fact):
    """A tier of machines, with its cheapest and its most expensive example."""

    name: str
    gpus: str
    purpose: str = Field(alias="for")
    least: TierPrice
    most: TierPrice

    @property
    def price_date(self) -> datetime.date:
        """The oldest date among its prices."""
        return min(filter(None, (self.least.oldest, self.most.oldest)), default=self.date)


def price_build(build: str) -> PurchasePrice:
    """Price a machine built from parts ("server-sxm5/8x-h100-sxm5-80gb"); its date is that of its oldest part."""
    chassis_id, _, rest = build.partition("/")
    count, _, gpu_id = rest.partition("x-")
    box, gpu, gpus = chassis().get(chassis_id), gpu_prices().get(gpu_id), int(count)
    return PurchasePrice(
        id=build,
        source=f"estimate from parts: {box.source}; {gpu.source}",
        date=min(box.date, gpu.date),
        usd=box.usd + gpus * gpu.usd,
        usd_low=box.usd_low + gpus * gpu.usd_low,
        usd_high=box.usd_high + gpus * gpu.usd_high,
    )


@functools.cache
def tiers() -> FactTable[Tier]:
    return read_toml("tier", Tier, "tiers.toml")
