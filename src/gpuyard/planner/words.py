"""Choices and numbers as a sentence says them."""

from gpuyard import units
from gpuyard.planner.result import Choice, PlanResult
from gpuyard.specs.plan import Acquisition, RemedyName

ACQUIRED: dict[Acquisition, str] = {
    "on-demand": "rented on demand",
    "reserved-1-year": "reserved for one year at a time",
    "reserved-3-years": "reserved for three years at a time",
    "spot": "rented on spot",
    "buy": "bought",
    "colocate": "bought and colocated",
    "hybrid": "partly bought, the rest rented",
}
REMEDIES: dict[RemedyName, str] = {
    "none": "",
    "fp16-gradients": "gradients sent as 16-bit numbers",
    "accumulation": "gradients exchanged every 4 steps",
    "powersgd": "gradients compressed by PowerSGD",
}


def usd(amount: float) -> str:
    """Runs may cost less than a cent."""
    return f"${amount:.2g}" if 0 < amount < 0.1 else units.format_usd(amount)


def hours(seconds: float) -> str:
    return units.format_seconds(seconds)


def what(choice: Choice) -> str:
    """ "2 × AWS p4d.24xlarge, rented on demand"."""
    own = f"{_many(choice.nodes * choice.clusters)}{choice.name}, {acquired(choice)}"
    rest = choice.rest
    if rest is None:
        return own
    share = share_of_runs(rest.share_of_runs)
    return (
        f"{own}, with {share} of the runs on {_many(rest.nodes)}{rest.name}, {ACQUIRED[rest.way]}"
    )


def acquired(choice: Choice) -> str:
    """How it is had, and whether its price is a guess."""
    assumed = " (price assumed)" if choice.price_is_assumed else ""
    return f"{ACQUIRED[choice.owned_way or choice.way]}{assumed}"


def acquired_cell(choice: Choice) -> str:
    """In a table."""
    return f"{choice.way}, assumed" if choice.price_is_assumed else choice.way


def machines(choice: Choice) -> str:
    """The same in a table that has the way in a column of its own."""
    own = f"{_many(choice.nodes * choice.clusters)}{choice.name}"
    rest = choice.rest
    return own if rest is None else f"{own} and {_many(rest.nodes)}{rest.name} ({rest.way})"


def share_of_runs(share: float) -> str:
    """Never nothing and never all, where it is neither."""
    if 0 < share < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < share < 1 else units.format_share(share)


def _many(count: int) -> str:
    return f"{count} × " if count > 1 else ""


def setting(choice: Choice) -> str:
    """How the run is set up: GPUs, network, batch, remedy."""
    parts = [f"{choice.gpus} GPUs a run" if choice.gpus > 1 else "1 GPU a run"]
    if choice.nodes > 1:
        parts.append(f"{choice.nodes} machines over {choice.network}")
    parts.append(f"batch {choice.batch_per_gpu} a GPU")
    if choice.remedy != "none":
        parts.append(REMEDIES[choice.remedy])
    if choice.clusters > 1:
        parts.append(f"{choice.clusters} such clusters side by side")
    return ", ".join(parts)


def price(choice: Choice) -> str:
    low, high = usd(choice.usd_per_run_low), usd(choice.usd_per_run_high)
    between = f" ({low} – {high})" if low != high else ""
    return f"{usd(choice.usd_per_run)} a finished run{between}"


def duration(choice: Choice) -> str:
    low, high = hours(choice.run_seconds_low), hours(choice.run_seconds_high)
    return f"{hours(choice.run_seconds)} a run ({low} – {high})"


def siting_rows(result: PlanResult) -> tuple[str, list[str], list[list[str]]]:
    """On premises and in a colocation, side by side."""
    columns = [
        "where",
        "energy a month",
        "rent a month",
        "room a month",
        "in all",
        "a run on them",
        "",
    ]
    rows = [
        [
            f"{siting.where}, PUE {siting.pue:g}, ${siting.usd_per_kwh:g}/kWh",
            usd(siting.energy_usd_per_month),
            usd(siting.rent_usd_per_month) if siting.way == "colocate" else "",
            "" if siting.build_usd_per_month is None else usd(siting.build_usd_per_month),
            usd(siting.total_usd),
            usd(siting.usd_per_run),
            "; ".join(siting.broken_rules),
        ]
        for siting in result.places
    ]
    return "Where the bought machines could stand", columns, rows


def price_dates(result: PlanResult) -> str:
    """When the prices of all that is shown were read."""
    shown = [*result.front, *(other.choice for other in result.alternatives if other.choice)]
    shown += [result.winner] if result.winner else []
    days = [choice.price_date for choice in shown]
    days += [choice.rest.price_date for choice in shown if choice.rest]
    dates = sorted({day for day in days if day})
    if not dates:
        return "All prices are the plan's own."
    estimated = (
        " Servers from parts are estimates." if any(c.price_is_estimate for c in shown) else ""
    )
    return f"Prices are of {dates[0]} to {dates[-1]}.{estimated}"
