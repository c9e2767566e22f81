"""The cost of owning over time: hardware, operation, and resale.

Every field of `OwnedHardware` is a float or a NumPy array, and arrays broadcast: one `OwnedHardware` can be one machine or
100,000 candidates. Results have the common shape S; cash by month has the shape S + (months + 1).
"""

from dataclasses import dataclass, fields

import numpy as np

from gpuyard.economics.billing import (
    HOURS_PER_MONTH,
    Amounts,
    Array,
    array_of,
    check_not_negative,
    check_share,
)
from gpuyard.errors import UserMistake

LLAMA3_GPU_HOURS_PER_FAILURE = 54 * 24 * 16_384 / 419
"""Llama 3: 419 unplanned interruptions in 54 days on 16,384 GPUs, one per 50,700 GPU-hours (arXiv 2407.21783)."""

_SHARES = (
    "spares_share", "utilization", "support_share_per_year", "financed_share", "value_kept_per_year",
    "interest_per_year",
)  # fmt: skip


@dataclass(frozen=True)
class OwnedHardware:
    """Purchased hardware and its operating costs; every cost defaults to zero."""

    hardware_usd: Amounts
    spares_share: Amounts = 0.0  # of the hardware, bought with it
    installation_usd: Amounts = 0.0
    network_usd: Amounts = 0.0  # switches and cables, once
    watts: Amounts = 0.0  # total under load
    idle_watts: Amounts = 0.0
    utilization: Amounts = 1.0  # share of all hours under load
    pue: Amounts = 1.0  # watts of the building per watt of the machines
    usd_per_kwh: Amounts = 0.0
    colocation_usd_per_year: Amounts = 0.0  # by rack
    colocation_usd_per_kw_month: Amounts = 0.0  # per kW of load, without energy
    network_usd_per_month: Amounts = 0.0  # uplink
    support_share_per_year: Amounts = 0.0  # of the hardware
    staff_hours_per_month: Amounts = 0.0
    staff_usd_per_hour: Amounts = 0.0
    gpus: Amounts = 0.0
    gpu_hours_per_failure: Amounts = LLAMA3_GPU_HOURS_PER_FAILURE
    usd_per_failure: Amounts = 0.0
    financed_share: Amounts = 0.0  # of the upfront costs
    interest_per_year: Amounts = 0.0
    loan_years: Amounts = 3.0
    value_kept_per_year: Amounts = 0.0  # 70% is 49% of the hardware after two years; 0: no resale
    straight_line_years: Amounts = 0.0  # alternative: the value falls evenly to zero; 0: not used

    def __post_init__(self) -> None:
        for field in fields(self):
            name = field.name.replace("_usd", "").replace("_", " ")
            check = check_share if field.name in _SHARES else check_not_negative
            check(name, getattr(self, field.name))
        if np.any(array_of(self.pue) < 1):
            raise UserMistake(
                "a PUE must be 1 or more, because the building draws at least what the machines do"
            )
        if np.any(array_of(self.idle_watts) > array_of(self.watts)):
            raise UserMistake("the idle power must not exceed the power under load")
        if np.any(
            (array_of(self.straight_line_years) > 0) & (array_of(self.value_kept_per_year) > 0)
        ):
            raise UserMistake(
                "use either a share of value kept per year or straight-line depreciation"
            )
        for what, amounts in (
            ("loan years", self.loan_years), ("GPU-hours per failure", self.gpu_hours_per_failure)
        ):  # fmt: skip
            if np.any(array_of(amounts) <= 0):
                raise UserMistake(f"{what} must be above zero")


def upfront_usd(owned: OwnedHardware) -> Array:
    """Return the one-time costs, paid in cash or by a loan."""
    hardware = array_of(owned.hardware_usd)
    return (
        hardware * (1 + array_of(owned.spares_share)) + owned.installation_usd + owned.network_usd
    )


def monthly_parts_usd(owned: OwnedHardware) -> dict[str, Array]:
    """Return the monthly operating costs by category."""
    busy = array_of(owned.utilization)
    mean_watts = busy * owned.watts + (1 - busy) * owned.idle_watts
    failures = busy * owned.gpus * HOURS_PER_MONTH / owned.gpu_hours_per_failure
    return {
        "power": mean_watts / 1000 * owned.pue * HOURS_PER_MONTH * owned.usd_per_kwh,
        "colocation": array_of(owned.colocation_usd_per_year) / 12
        + array_of(owned.watts) / 1000 * owned.colocation_usd_per_kw_month,
        "network": array_of(owned.network_usd_per_month),
        "support": array_of(owned.hardware_usd) * owned.support_share_per_year / 12,
        "staff": array_of(owned.staff_hours_per_month) * owned.staff_usd_per_hour,
        "failures": failures * owned.usd_per_failure,
    }


def monthly_usd(owned: OwnedHardware) -> Array:
    """Return the monthly operating costs, without loan payments."""
    return sum(monthly_parts_usd(owned).values(), start=array_of(0.0))


def resale_usd(owned: OwnedHardware, years: Amounts) -> Array:
    """Return the resale value at this age, by the share kept per year or straight-line depreciation."""
    kept = np.power(array_of(owned.value_kept_per_year), years)
    life = array_of(owned.straight_line_years)
    with np.errstate(divide="ignore", over="ignore"):
        remaining = np.maximum(1 - array_of(years) / life, 0.0)
    return array_of(owned.hardware_usd) * np.where(life > 0, remaining, kept)


def loan_payment_usd(owned: OwnedHardware) -> Array:
    """The equal payment of each month of the loan."""
    rate = array_of(owned.interest_per_year) / 12
    months = array_of(owned.loan_years) * 12
    principal = upfront_usd(owned) * owned.financed_share
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        annuity = np.where(rate > 0, rate / -np.expm1(-months * np.log1p(rate)), 1 / months)
    return principal * annuity


def loan_balance_usd(owned: OwnedHardware, months: Amounts) -> Array:
    """Return the outstanding loan after this many payments."""
    rate = array_of(owned.interest_per_year) / 12
    term = array_of(owned.loan_years) * 12
    remaining = np.maximum(term - months, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = np.where(rate > 0, -np.expm1(-remaining * np.log1p(rate)) / rate, remaining)
    return loan_payment_usd(owned) * worth


def owned_usd(owned: OwnedHardware, years: Amounts) -> Array:
    """Return all payments over the horizon, including paying off a loan, minus the resale."""
    if np.any(~(array_of(years) > 0)):
        raise UserMistake("the horizon must be above zero years")
    months = array_of(years) * 12
    paid = np.minimum(array_of(owned.loan_years) * 12, months)
    upfront = upfront_usd(owned) * (1 - array_of(owned.financed_share))
    loan = loan_payment_usd(owned) * paid + loan_balance_usd(owned, months)
    return upfront + loan + monthly_usd(owned) * months - resale_usd(owned, years)


def owned_cash_by_month(owned: OwnedHardware, months: int) -> Array:
    """Return the payments by month, with shape `S + (months + 1,)`; month 0 is the purchase.

    Month m is the end of month m. The last month pays off the loan and receives the resale, so that the sum is
    `owned_usd`.
    """
    month = np.arange(1, months + 1, dtype=np.float64)
    term = array_of(owned.loan_years)[..., None] * 12
    # a loan of 10.5 months has half a payment in the 11th
    share_paid = np.clip(term - (month - 1), 0.0, 1.0)
    running = monthly_usd(owned)[..., None] + loan_payment_usd(owned)[..., None] * share_paid
    first = (upfront_usd(owned) * (1 - array_of(owned.financed_share)))[..., None]
    last = (loan_balance_usd(owned, float(months)) - resale_usd(owned, months / 12))[..., None]
    shape = np.broadcast_shapes(running.shape[:-1], first.shape[:-1], last.shape[:-1])
    cash = np.zeros((*shape, months + 1))
    cash[..., 1:] = running
    cash[..., :1] += first
    cash[..., -1:] += last
    return cash


def present_value_usd(cash_by_month: Array, discount_per_year: Amounts) -> Array:
    """Discount payments by month: a dollar in one year counts `1 / (1 + rate)` today."""
    check_not_negative("the discount rate", discount_per_year)
    months = np.arange(cash_by_month.shape[-1])
    rate = array_of(discount_per_year)[..., None]
    return np.asarray(np.sum(cash_by_month * (1 + rate) ** (-months / 12), axis=-1))


_SLACK = 1e-9  # a demand of 2.0000000001 machines does not need a third


@dataclass(frozen=True)
class OwnedSize:
    """The best size to own and its hourly cost, with one entry per case."""

    own: Array
    own_all: Array  # enough for the peak
    served: Array  # mean demand that owned capacity serves
    rented: Array  # mean demand that is rented
    usd_per_hour: Array


def critical_share(owned_usd: Amounts, rented_usd: Amounts, running_usd: Amounts) -> Array:
    """Return the quantile of the demand up to which owning pays; 0 if it never pays."""
    margin = array_of(rented_usd) - running_usd
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(margin > 0, np.maximum(0.0, 1 - array_of(owned_usd) / margin), 0.0)


def best_owned_size(
    demand: Array,
    *,
    owned_usd: Amounts,
    rented_usd: Amounts,
    running_usd: Amounts = 0.0,
    renting_usd: Amounts = 0.0,
    scale: Amounts = 1.0,
    each: Amounts = 1.0,
    minimum: Amounts = 0.0,
    maximum: Amounts = np.inf,
) -> OwnedSize:
    """Find the cheapest multiple of `each` to own for a demand of `scale × demand` in equal periods.

    Prices are per unit and hour: owned (used or not), rented, and running (added by use of an owned unit).
    `renting_usd` is paid each hour if anything is rented at all, for example for data in a cloud.
    The size is limited to `minimum` and `maximum`.
    """
    ordered = np.sort(demand)
    factor, step = array_of(scale), array_of(each)
    share = critical_share(owned_usd, rented_usd, running_usd)
    rank = np.clip(np.ceil(share * ordered.size - _SLACK) - 1, 0, ordered.size - 1).astype(int)
    ideal = np.where(share > 0, ordered[rank] * factor, 0.0)
    everything = np.ceil(ordered[-1] * factor / step - _SLACK) * step
    below = np.floor(ideal / step + _SLACK) * step
    # the cost is convex in the size up to the last machine, which also saves the fixed cost of renting
    almost_everything = np.maximum(everything - step, 0.0)
    sizes = (0.0, below, below + step, almost_everything, everything)
    limit = np.minimum(everything, np.floor(array_of(maximum) / step + _SLACK) * step)
    shape = np.broadcast_shapes(
        *(array_of(a).shape for a in (limit, below, rented_usd, running_usd, renting_usd))
    )
    options = [
        cost_of_size(
            ordered, np.broadcast_to(np.minimum(np.maximum(size, minimum), limit), shape), everything,
            owned_usd=owned_usd, rented_usd=rented_usd, running_usd=running_usd,
            renting_usd=renting_usd, scale=factor,
        )
        for size in sizes
    ]  # fmt: skip
    best = np.argmin(np.stack([option.usd_per_hour for option in options]), axis=0)
    return OwnedSize(
        own=np.choose(best, [option.own for option in options]),
        own_all=np.broadcast_to(everything, shape),
        served=np.choose(best, [option.served for option in options]),
        rented=np.choose(best, [option.rented for option in options]),
        usd_per_hour=np.choose(best, [option.usd_per_hour for option in options]),
    )


def cost_of_size(
    demand: Array,
    own: Array,
    own_all: Array,
    *,
    owned_usd: Amounts,
    rented_usd: Amounts,
    running_usd: Amounts,
    renting_usd: Amounts,
    scale: Amounts,
) -> OwnedSize:
    """Return the cost of owning this size; `demand` must be sorted."""
    sums = np.concatenate([[0.0], np.cumsum(demand)])
    factor = array_of(scale)
    level = np.divide(own, factor, out=np.full(np.shape(own), np.inf), where=factor > 0)
    full = np.searchsorted(demand, level, side="right")  # periods that owned capacity serves fully
    over = demand.size - full
    capped = np.where(over > 0, np.where(np.isfinite(level), level, 0.0) * over, 0.0)
    served = factor * (sums[full] + capped) / demand.size
    rented = np.maximum(factor * sums[-1] / demand.size - served, 0.0)
    usd = (
        array_of(owned_usd) * own
        + array_of(running_usd) * served
        + array_of(rented_usd) * rented
        + array_of(renting_usd) * (own < own_all)
    )
    return OwnedSize(own, own_all, served, rented, usd)
