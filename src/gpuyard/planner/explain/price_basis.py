"""Explain what a decision owes to its prices: old or estimated ones, and the quotes that would change it."""

import datetime
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpuyard import units
from gpuyard.planner.candidates import Booleans, Candidates
from gpuyard.planner.choice import Choice, format_dollars
from gpuyard.planner.choices import create_choices
from gpuyard.planner.offers import BOUGHT
from gpuyard.planner.ranking import Ranking, find_simplest_setting

_OLD_YEARS = 2


def describe_price_basis(candidates: Candidates, ranking: Ranking, winner: Choice | None) -> str:
    """Describe the old or estimated price that the decision rests on; empty if there is none."""
    if winner is None:
        return ""
    if winner.price_is_estimate and winner.machine_usd_range is not None:
        low, high = map(units.format_usd, winner.machine_usd_range)
        dates = sorted(winner.price_dates)
        days = f"of {dates[0]}" if dates[0] == dates[-1] else f"of {dates[0]} to {dates[-1]}"
        return f"This rests on an estimated price: {low} to {high} for one machine, from prices {days}."
    age = _find_age_years(candidates, winner)
    if age > _OLD_YEARS:
        return f"This rests on a price of {winner.price_date}."
    cheaper = _find_cheaper_if_quoted(candidates, ranking, winner)
    if cheaper is None:
        return ""
    return f"This rests on an estimated price: at the low end of its range, {cheaper.summary}, would cost less."


def list_price_changes(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """List the price at which another option is cheaper, and the quotes that would decide."""
    near = _find_next_best(candidates, ranking, winner)
    if near is not None and winner.usd_per_run > 0 and near.usd_per_run > winner.usd_per_run:
        increase = near.usd_per_run / winner.usd_per_run - 1
        yield (
            f"A {'cost' if winner.way == 'keep' else 'price'} that is {_format_percent(increase)} higher: "
            f"then {near.summary}, at {format_dollars(near.usd_per_run)} per run, would be cheaper."
        )
    if winner.price_is_estimate and winner.machine_usd is not None:
        yield _ask_for_quote(candidates, winner)
    elif (age := _find_age_years(candidates, winner)) > _OLD_YEARS:
        yield (
            f"A quote: its price is from {winner.price_date}, {units.format_years(round(age))} older than the newest "
            "here (prices.servers)."
        )
    cheaper = _find_cheaper_if_quoted(candidates, ranking, winner)
    if cheaper is not None:
        low, _ = cheaper.machine_usd_range or (0.0, 0.0)
        yield (
            f"A quote for {cheaper.name}: at {units.format_usd(low)}, the low end of its estimated price, it costs "
            f"{format_dollars(cheaper.usd_per_run)} per run (prices.servers, prices.gpus)."
        )


def same_server(candidates: Candidates, winner: Choice) -> Booleans:
    """Return which candidates use the winner's kind of machine."""
    same = [offer.server.id == winner.offer for offer in candidates.offers]
    return np.asarray(np.array(same)[candidates.offer])


def _ask_for_quote(candidates: Candidates, winner: Choice) -> str:
    low, high = map(units.format_usd, winner.machine_usd_range or (0.0, 0.0))
    estimate = f"one {winner.name} is estimated at {units.format_usd(winner.machine_usd or 0.0)} ({low} – {high})"
    age = _find_age_years(candidates, winner)
    old = ""
    if age > _OLD_YEARS:
        old = (
            f", which includes a price from {winner.price_date}, {units.format_years(round(age))} older than the "
            "newest here"
        )
    return f"A quote: {estimate}{old} (prices.servers, prices.gpus)."


def _find_age_years(candidates: Candidates, winner: Choice) -> float:
    """Return how much older the winner's oldest price is than the newest one; 0 if the plan gives it."""
    dates = [o.server.price_date for o in candidates.offers if o.server.price_date]
    if winner.price_date is None or not dates:
        return 0.0
    return (max(dates) - datetime.date.fromisoformat(winner.price_date)).days / 365.25


def _find_next_best(candidates: Candidates, ranking: Ranking, winner: Choice) -> Choice | None:
    """Return the cheapest option on other machines that meets the goal."""
    rows = np.flatnonzero(ranking.feasible & ~same_server(candidates, winner))
    if not len(rows):
        return None
    near = int(rows[np.argmin(candidates.costs.usd_per_run[rows])])
    (choice,) = create_choices(
        candidates, ranking, [find_simplest_setting(candidates, ranking, near)]
    )
    return choice


def _find_cheaper_if_quoted(
    candidates: Candidates, ranking: Ranking, winner: Choice
) -> Choice | None:
    """Return the option that beats a winner with a firm price at the low end of its estimated price."""
    if winner.price_is_estimate:
        return None  # prices of parts err together
    bought = candidates.acquired_by(*BOUGHT) & ranking.feasible & ~same_server(candidates, winner)
    rows = np.flatnonzero(bought)
    if not len(rows):
        return None
    cheap = candidates.at_price_end("low")
    speeds = candidates.throughputs.samples_per_second[candidates.row[rows]]
    usd = cheap.price(rows, speeds).usd_per_run
    best = int(np.argmin(usd))
    if usd[best] >= winner.usd_per_run:
        return None
    (choice,) = create_choices(candidates, ranking, [int(rows[best])])
    return replace(choice, usd_per_run=float(usd[best]))


def _format_percent(share: float) -> str:
    return "under 1%" if share < 0.01 else f"{100 * share:.0f}%"
