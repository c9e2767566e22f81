"""What renting and owning cost. Pure: prices in, money over time out."""

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
    straight_line_value_usd,
    upfront_usd,
)
from gpuyard.economics.reserved import Rest, reserved_cash_by_month, reserved_usd
from gpuyard.economics.spot import (
    daly_interval_hours,
    spot_hours_per_useful_hour,
    spot_usd,
    young_interval_hours,
)

__all__ = [
    "INCREMENTS",
    "LLAMA3_GPU_HOURS_PER_FAILURE",
    "BreakEven",
    "Owned",
    "Rest",
    "billed_hours",
    "break_even",
    "committed_usd",
    "daly_interval_hours",
    "egress_usd",
    "loan_balance_usd",
    "loan_payment_usd",
    "monthly_parts_usd",
    "monthly_usd",
    "on_demand_usd",
    "owned_cash_by_month",
    "owned_usd",
    "present_value_usd",
    "resale_usd",
    "reserved_cash_by_month",
    "reserved_usd",
    "spot_hours_per_useful_hour",
    "spot_usd",
    "storage_usd",
    "straight_line_value_usd",
    "to_cents",
    "upfront_usd",
    "young_interval_hours",
]
