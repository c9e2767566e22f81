"""What renting and owning cost. Pure: prices in, money over time out."""

from gpuyard.economics.amounts import HOURS_PER_MONTH, HOURS_PER_YEAR, Amounts
from gpuyard.economics.billing import (
    INCREMENTS,
    billed_hours,
    committed_usd,
    egress_usd,
    on_demand_usd,
    storage_usd,
    to_cents,
)
from gpuyard.economics.break_even import BreakEven, break_even
from gpuyard.economics.capacity_mix import CapacityMix, Tier, TierShare, best_mix
from gpuyard.economics.demand import Demand, Pattern, demand_from_csv, demand_of, described_demand
from gpuyard.economics.growth import Growth, GrowthPlan, NextMachine, Purchase, plan_growth
from gpuyard.economics.hybrid import Hybrid, HybridPrices, Mix, best_hybrid, mix_of
from gpuyard.economics.invoice import fitting_increments
from gpuyard.economics.mixed_offer import compare_offers
from gpuyard.economics.offers import PricedOffer, price_offers
from gpuyard.economics.owned_size import OwnedSize, best_owned_size, cost_of_size
from gpuyard.economics.ownership import (
    LLAMA3_GPU_HOURS_PER_FAILURE,
    Owned,
    loan_balance_usd,
    loan_payment_usd,
    monthly_parts_usd,
    monthly_usd,
    owned_cash_by_month,
    owned_usd,
    present_value_usd,
    resale_usd,
    upfront_usd,
)
from gpuyard.economics.rent_or_own import (
    RentOrOwn,
    break_even_months,
    comparable_cash_by_month,
    rent_monthly_usd,
    rented_cash_by_month,
    rest_of_term_usd,
    saving_usd,
)
from gpuyard.economics.reserved import (
    Rest,
    reserved_cash_by_month,
    reserved_usd,
    unused_years,
)
from gpuyard.economics.sensitivity import Bar, Spread, monte_carlo, ranges_around, tornado
from gpuyard.economics.slurm_demand import demand_from_sacct
from gpuyard.economics.spot import (
    daly_interval_hours,
    spot_hours_per_useful_hour,
    spot_usd,
    young_interval_hours,
)

__all__ = [
    "HOURS_PER_MONTH",
    "HOURS_PER_YEAR",
    "INCREMENTS",
    "LLAMA3_GPU_HOURS_PER_FAILURE",
    "Amounts",
    "Bar",
    "BreakEven",
    "CapacityMix",
    "Demand",
    "Growth",
    "GrowthPlan",
    "Hybrid",
    "HybridPrices",
    "Mix",
    "NextMachine",
    "Owned",
    "OwnedSize",
    "Pattern",
    "PricedOffer",
    "Purchase",
    "RentOrOwn",
    "Rest",
    "Spread",
    "Tier",
    "TierShare",
    "best_hybrid",
    "best_mix",
    "best_owned_size",
    "billed_hours",
    "break_even",
    "break_even_months",
    "committed_usd",
    "comparable_cash_by_month",
    "compare_offers",
    "cost_of_size",
    "daly_interval_hours",
    "demand_from_csv",
    "demand_from_sacct",
    "demand_of",
    "described_demand",
    "egress_usd",
    "fitting_increments",
    "loan_balance_usd",
    "loan_payment_usd",
    "mix_of",
    "monte_carlo",
    "monthly_parts_usd",
    "monthly_usd",
    "on_demand_usd",
    "owned_cash_by_month",
    "owned_usd",
    "plan_growth",
    "present_value_usd",
    "price_offers",
    "ranges_around",
    "rent_monthly_usd",
    "rented_cash_by_month",
    "resale_usd",
    "reserved_cash_by_month",
    "reserved_usd",
    "rest_of_term_usd",
    "saving_usd",
    "spot_hours_per_useful_hour",
    "spot_usd",
    "storage_usd",
    "to_cents",
    "tornado",
    "unused_years",
    "upfront_usd",
    "young_interval_hours",
]
