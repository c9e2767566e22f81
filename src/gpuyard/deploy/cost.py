"""What a deployment costs: its rent, or the electricity of machines that one has."""

import time
from dataclasses import dataclass

from gpuyard.catalog.electricity import Tariff
from gpuyard.deploy.clouds.ttl import end_of
from gpuyard.deploy.deployment import Opened
from gpuyard.errors import GpuyardError


@dataclass(frozen=True)
class Electricity:
    """Of all machines under load."""

    watts: float
    basis: str
    pue: float
    tariff: Tariff | None
    """None: nobody has said what a kWh costs."""


@dataclass(frozen=True)
class DeploymentCost:
    """While its machines are there."""

    name: str
    target: str
    rent_usd_per_hour: float
    electricity: Electricity | None
    electricity_usd_per_hour: float | None
    max_usd_per_hour: float | None
    ttl_seconds: float | None
    left_seconds: float | None
    """Until it is removed by itself, where it is up."""

    @property
    def usd_per_hour(self) -> float:
        return self.rent_usd_per_hour + (self.electricity_usd_per_hour or 0.0)

    @property
    def in_budget(self) -> bool | None:
        if self.max_usd_per_hour is None:
            return None
        return self.rent_usd_per_hour <= self.max_usd_per_hour


def cost_of(opened: Opened, tariff: Tariff | None, pue: float) -> DeploymentCost:
    """Rent as its target says it now. Machines of an `ssh` target are yours, and cost their electricity."""
    deployment, target = opened.deployment, opened.target
    power = _electricity(opened, tariff, pue) if target.kind == "ssh" else None
    end = end_of(opened.state) if opened.state.hosts() else None
    rent = target.usd_per_hour(deployment, opened.cluster)
    if rent is None:
        raise GpuyardError(
            f"the hourly price of {deployment.name} is not known: the price list has no such machine there"
        )
    return DeploymentCost(
        name=deployment.name,
        target=target.kind,
        rent_usd_per_hour=rent,
        electricity=power,
        electricity_usd_per_hour=None if power is None else _usd_per_hour(power),
        max_usd_per_hour=getattr(deployment.target, "max_usd_per_hour", None),
        ttl_seconds=getattr(deployment.target, "ttl", None),
        left_seconds=None if end is None else max(0.0, end.when - time.time()),
    )


def _electricity(opened: Opened, tariff: Tariff | None, pue: float) -> Electricity:
    from gpuyard.facility.server import server_device

    device, _ = server_device(opened.cluster)
    watts = opened.cluster.nodes * device.typical_watts
    return Electricity(watts, device.basis.partition(";")[0], pue, tariff)


def _usd_per_hour(power: Electricity) -> float | None:
    from gpuyard.economics.billing import HOURS_PER_MONTH
    from gpuyard.economics.ownership import Owned, monthly_parts_usd

    if power.tariff is None:
        return None
    owned = Owned(
        hardware_usd=0.0, watts=power.watts, pue=power.pue, usd_per_kwh=power.tariff.usd_per_kwh
    )
    return float(monthly_parts_usd(owned)["power"]) / HOURS_PER_MONTH
