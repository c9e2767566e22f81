"""The running cost of a deployment: the rent of its machines, or the electricity of machines that you own."""

import time
from dataclasses import dataclass

from gpuyard.catalog.electricity import Tariff
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.expiry import read_expiry
from gpuyard.errors import GpuyardError


@dataclass(frozen=True)
class Electricity:
    """The power that all machines draw under load, and its price."""

    watts: float
    basis: str
    pue: float
    tariff: Tariff | None
    """None if no electricity price was given."""


@dataclass(frozen=True)
class DeploymentCost:
    """Hourly cost of a deployment while its machines exist."""

    name: str
    target: str
    rent_usd_per_hour: float
    electricity: Electricity | None
    electricity_usd_per_hour: float | None
    max_usd_per_hour: float | None
    ttl_seconds: float | None
    remaining_seconds: float | None
    """Time until the deployment is removed automatically; None if it is not up or never expires."""

    @property
    def usd_per_hour(self) -> float:
        return self.rent_usd_per_hour + (self.electricity_usd_per_hour or 0.0)

    @property
    def in_budget(self) -> bool | None:
        if self.max_usd_per_hour is None:
            return None
        return self.rent_usd_per_hour <= self.max_usd_per_hour


def calculate_cost(loaded: LoadedDeployment, tariff: Tariff | None, pue: float) -> DeploymentCost:
    """Return the cost at the target's current prices; machines of an `ssh` target cost their electricity."""
    deployment, target = loaded.deployment, loaded.target
    power = _estimate_power(loaded, tariff, pue) if target.kind == "ssh" else None
    expiry = read_expiry(loaded.state) if loaded.state.hosts() else None
    rent = target.usd_per_hour(deployment, loaded.cluster)
    if rent is None:
        raise GpuyardError(
            f"the hourly price of {deployment.name} is unknown: the price list has no such machine in this region"
        )
    return DeploymentCost(
        name=deployment.name,
        target=target.kind,
        rent_usd_per_hour=rent,
        electricity=power,
        electricity_usd_per_hour=None if power is None else _calculate_usd_per_hour(power),
        max_usd_per_hour=getattr(deployment.target, "max_usd_per_hour", None),
        ttl_seconds=getattr(deployment.target, "ttl", None),
        remaining_seconds=None if expiry is None else max(0.0, expiry.unix_seconds - time.time()),
    )


def _estimate_power(loaded: LoadedDeployment, tariff: Tariff | None, pue: float) -> Electricity:
    from gpuyard.facilities.server import build_server_device

    device, _ = build_server_device(loaded.cluster)
    watts = loaded.cluster.nodes * device.typical_watts
    return Electricity(watts, device.basis.partition(";")[0], pue, tariff)


def _calculate_usd_per_hour(power: Electricity) -> float | None:
    from gpuyard.economics.billing import HOURS_PER_MONTH
    from gpuyard.economics.ownership import OwnedHardware, monthly_parts_usd

    if power.tariff is None:
        return None
    owned = OwnedHardware(
        hardware_usd=0.0, watts=power.watts, pue=power.pue, usd_per_kwh=power.tariff.usd_per_kwh
    )
    return float(monthly_parts_usd(owned)["power"]) / HOURS_PER_MONTH
