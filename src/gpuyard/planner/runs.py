"""How many runs there will be, and what their data costs where they are rented: the dataset kept in a cloud
over the horizon, results taken out after each run."""

from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.prices import ASSUMED_CLOUD
from gpuyard.catalog.prices import cloud_data as prices_table
from gpuyard.economics.amounts import HOURS_PER_MONTH
from gpuyard.economics.billing import egress_usd, storage_usd
from gpuyard.facility.storage import CHECKPOINT_BYTES_PER_PARAMETER
from gpuyard.predict.table import Floats
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan, Renting

_SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
_GB = 1e9


@dataclass(frozen=True)
class PlannedRuns:
    """Runs over the horizon. Everyone is taken to start as many as those who are here today."""

    months: float
    per_month_now: float
    per_month_at_end: float

    @property
    def years(self) -> float:
        return self.months / 12

    @property
    def total(self) -> float:
        """In all: people come evenly over the year, so the mean of start and end counts."""
        return self.months * (self.per_month_now + self.per_month_at_end) / 2

    @property
    def per_month(self) -> Floats:
        """Through the horizon, in steps of about a month, from the first to the last."""
        steps = max(2, round(self.months) + 1)
        return np.linspace(self.per_month_now, self.per_month_at_end, steps)


def runs_of(plan: Plan) -> PlannedRuns:
    months = plan.horizon / _SECONDS_PER_MONTH
    people = plan.people.researchers
    at_end = people + plan.people.hires_per_year * months / 12
    return PlannedRuns(
        months=months,
        per_month_now=plan.runs_per_month,
        per_month_at_end=plan.runs_per_month * at_end / people,
    )


@dataclass(frozen=True)
class CloudData:
    """How much lies there and how much is taken out, and the plan's own prices where it has some."""

    stored_gb: float
    out_gb_per_run: float
    renting: Renting

    def usd(self, cloud: str | None, runs: PlannedRuns) -> tuple[float, float]:
        """Over the horizon: what keeping costs, and what taking out costs where every run is rented."""
        price = prices_table().get(priced_as(cloud))
        kept = self.renting.storage
        out = self.renting.egress
        free = 0.0 if out is not None else price.free_egress_gb_per_month * runs.months
        keeping = storage_usd(
            self.stored_gb,
            runs.months,
            price.storage_usd_per_gb_month if kept is None else kept,
        )
        taking_out = egress_usd(
            self.out_gb_per_run * runs.total, price.egress_usd_per_gb if out is None else out, free
        )
        return float(keeping), float(taking_out)


def priced_as(cloud: str | None) -> str:
    """The cloud whose prices of data stand for this one."""
    return cloud if cloud is not None and cloud in prices_table() else ASSUMED_CLOUD


def cloud_data_of(plan: Plan, workload: Workload, profile: ModelProfile) -> CloudData:
    """The plan's own sizes, or those that follow from the workload."""
    renting, dataset = plan.renting, workload.dataset
    stored = renting.data
    if stored is None and dataset is not None:
        each = dataset.bytes_per_sample
        stored = dataset.samples * (profile.input_bytes if each is None else each)
    out = renting.results
    if out is None:
        out = CHECKPOINT_BYTES_PER_PARAMETER * profile.parameters
    return CloudData((stored or 0.0) / _GB, out / _GB, renting)
