"""Where a team stands and what comes next: the rulebook's answer for the facts about it."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gpuyard.catalog import prices
from gpuyard.catalog.prices import shipped_prices
from gpuyard.catalog.tiers import build_price, tiers
from gpuyard.planner.playbook.rulebook import Fact, Reason, Stage, StageFigures, rulebook
from gpuyard.planner.result import PlanResult
from gpuyard.planner.search import make_plan, plan_premises, plan_workload
from gpuyard.planner.servers import PricedServer, servers_of
from gpuyard.predict import Calibration
from gpuyard.specs.offers import Load
from gpuyard.specs.plan import Acquisition, Plan

Where = Literal["cloud", "on-premises", "colocation", "hybrid", "either"]
_WHERE_OF: dict[Acquisition, Where] = {
    "buy": "on-premises",
    "colocate": "colocation",
    "keep": "on-premises",
    "hybrid": "hybrid",
}
# what one GPU draws with its share of a machine, and a room around it: 700 W boards in a 10.2 kW
# machine of eight (DGX H100), and Uptime's mean PUE of 1.58 (2023)
_KW_PER_GPU = 10.2 / 8 * 1.58
_MOST_MONTHS = 120
_GPUS_PER_SERVER = 8


@dataclass(frozen=True)
class Team:
    """The answers to the playbook's questions."""

    researchers: int = 1
    hires_per_year: float = 0.0
    gpus: int = 1  # that are needed at once, today
    data_stays: bool = False
    load: Load = "steady"
    inference: bool = False
    data_bytes: float = 0.0
    site_watts: float | None = None
    watts: float | None = None  # of the GPUs with machine and cooling; None: estimated

    def facts(self, growth: float = 1.0) -> dict[str, Fact]:
        """As the rulebook names them, after the team has grown by a factor."""
        kw = (self.watts / 1000 if self.watts else self.gpus * _KW_PER_GPU) * growth
        return {
            "researchers": self.researchers * growth,
            "gpus": self.gpus * growth,
            "data_tb": self.data_bytes / 1e12,
            "kw": kw,
            "site_holds": self.site_watts is None or kw <= self.site_watts / 1000,
            "data_stays": self.data_stays,
            "load": self.load,
            "inference": self.inference,
        }


@dataclass(frozen=True)
class NextStep:
    """The stage after this one, what calls for it, and when growth alone would."""

    stage: str
    trigger: str
    months: int | None  # None: not by growth within ten years


@dataclass(frozen=True)
class AdvisedTool:
    """Software by its name."""

    name: str
    purpose: str
    url: str


@dataclass(frozen=True)
class StageMachines:
    """What the machines of a stage are sold as, and between what one costs."""

    tier: str
    least_usd: float
    most_usd: float
    oldest_price: str


@dataclass(frozen=True)
class Advice:
    """The playbook's answer."""

    team: Team
    gpus_from: str  # where the number of GPUs comes from
    stage: str
    stage_name: str
    why: str
    where: Where
    reasons: tuple[str, ...]
    software: tuple[str, ...]
    tools: tuple[AdvisedTool, ...]
    machines: StageMachines
    next: NextStep | None
    commands: tuple[str, ...]
    prices_from: str | None  # None: no command carries a price

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Figures:
    """What the commands carry: what renting one GPU and buying one machine cost, and how much one person trains."""

    rent_usd_per_gpu_hour: float
    machine_usd: float
    gpus_per_machine: int
    gpu_hours_per_person_month: float
    source: str

    def filled(self) -> dict[str, str]:
        """As a command line writes them."""
        return {
            "rent": f"'${self.rent_usd_per_gpu_hour:.2f}/h'",
            "buy": f"'${self.machine_usd:.0f}'",
            "gpus_per_machine": str(self.gpus_per_machine),
            "gpu_hours": f"{self.gpu_hours_per_person_month:.3g}",
        }


@dataclass(frozen=True)
class PlanAnswer:
    """What a plan says about its team: how many GPUs it needs by whom, where, and at which prices."""

    team: Team
    gpus_from: str
    figures: Figures | None = None
    where: Where | None = None  # of its choice; None where it has none
    words: str = ""  # the choice, or why there is none


def team_of(plan: Plan, directory: Path, calibration: Calibration | None = None) -> PlanAnswer:
    """The team that a plan is for, and the plan's own answer."""
    asked = plan.playbook
    gpus, watts, source, result = asked.gpus_now, None, "the plan's file", None
    # a workload that nobody described can't be searched, and need not be where the GPUs are given
    if gpus is None or plan_workload(plan, directory).dataset is not None:
        result = make_plan(plan, directory, calibration)
        if gpus is None:
            gpus, watts, source = _needed(result)
    team = Team(
        researchers=plan.people.researchers,
        hires_per_year=plan.people.hires_per_year,
        gpus=gpus,
        data_stays=plan.policy.data_stays,
        load=asked.load,
        inference=asked.inference,
        data_bytes=asked.data or 0.0,
        site_watts=plan_premises(plan, directory).room_watts,
        watts=watts,
    )
    if result is None:
        return PlanAnswer(team, source)
    where, words = _planned(result)
    return PlanAnswer(team, source, plan_figures(plan, result), where, words)


def _planned(result: PlanResult) -> tuple[Where | None, str]:
    if result.winner is None:
        return None, "The plan finds no option that meets its goal, so rules of thumb say where."
    chosen = result.winner
    return _WHERE_OF.get(chosen.way, "cloud"), f"The plan's choice: {chosen.what}, {chosen.price}."


def _needed(result: PlanResult) -> tuple[int, float | None, str]:
    nearest = next((bound.nearest for bound in result.binding if bound.nearest), None)
    chosen = result.winner or nearest
    if chosen is None:
        return 1, None, "one, as no option of the plan is allowed"
    source = f"the plan's choice: {chosen.nodes * chosen.clusters} × {chosen.name}"
    return chosen.gpus * chosen.clusters, chosen.watts or None, source


def advise(
    team: Team,
    gpus_from: str = "your answer",
    plan_file: str | None = None,
    answer: PlanAnswer | None = None,
) -> Advice:
    """Look the team up in the rulebook. Where a plan has chosen, it says where."""
    facts = team.facts()
    stage = _stage(facts)
    holding = [reason for reason in rulebook().reason if reason.holds(facts)]
    where, reasons = _where(holding)
    if answer is not None and answer.where is not None:
        where, reasons = answer.where, _beside(answer.where, holding)
    if answer is not None and answer.words:
        reasons = (answer.words, *reasons)
    filled = {
        "researchers": team.researchers,
        "hires_per_year": f"{team.hires_per_year:g}",
        "gpus": team.gpus,
        "servers": max(1, math.ceil(team.gpus / _GPUS_PER_SERVER)),
        "load": team.load,
        "plan": plan_file or "team.plan.yaml",
    }
    priced = (answer.figures if answer else None) or stage_figures(stage.figures)
    filled |= priced.filled()
    commands = tuple(command.format(**filled) for command in stage.commands)
    return Advice(
        team=team,
        gpus_from=gpus_from,
        stage=stage.id,
        stage_name=stage.name,
        why=stage.why,
        where=where,
        reasons=reasons,
        software=stage.software,
        tools=tuple(AdvisedTool(t.name, t.purpose, t.url) for t in rulebook().tools_of(stage)),
        machines=_machines(stage),
        next=_next(team, stage),
        commands=commands,
        prices_from=priced.source if any("{rent}" in line for line in stage.commands) else None,
    )


def _machines(stage: Stage) -> StageMachines:
    tier = tiers().get(stage.tier)
    least, most = tier.least.total_usd, tier.most.total_usd
    return StageMachines(tier.name.lower(), least, most, tier.price_date.isoformat())


def _stage(facts: dict[str, Fact]) -> Stage:
    return next(stage for stage in rulebook().stage if stage.holds(facts))


def _where(holding: list[Reason]) -> tuple[Where, tuple[str, ...]]:
    deciding = [reason for reason in holding if reason.decides]
    if deciding:
        side = deciding[0].side
        same = [reason.words for reason in holding if reason.side == side and not reason.decides]
        return side, (deciding[0].words, *same)
    sides = {reason.side for reason in holding}
    words = tuple(reason.words for reason in holding)
    if len(sides) == 2:
        return "hybrid", words
    return (next(iter(sides)), words) if sides else ("either", words)


def _beside(where: Where, holding: list[Reason]) -> tuple[str, ...]:
    """What speaks for the plan's choice, and which rules of thumb speak against it."""
    owned = where in {"on-premises", "colocation"}
    side = "on-premises" if owned else where
    for_it = [reason.words for reason in holding if where == "hybrid" or reason.side == side]
    against = [reason.words for reason in holding if where != "hybrid" and reason.side != side]
    return (*for_it, *(f"A rule of thumb against it: {words}" for words in against))


def _next(team: Team, stage: Stage) -> NextStep | None:
    """The stage that growth leads to first; without growth, the one after this in the table."""
    stages = rulebook().stage
    for month in range(1, _MOST_MONTHS + 1):
        growth = 1 + team.hires_per_year * month / 12 / team.researchers
        coming = _stage(team.facts(growth))
        if coming.id != stage.id:
            return NextStep(coming.name, stage.trigger, month)
    later = stages[stages.index(stage) + 1 :]
    after = next(
        (s for s in later if s.when.get("data_stays", team.data_stays) == team.data_stays), None
    )
    return NextStep(after.name, stage.trigger, None) if after else None


def stage_figures(asked: StageFigures) -> Figures:
    """A machine from parts and an instance of the catalog, as the stage names them."""
    count = asked.machine.partition("/")[2].partition("x-")[0]
    usd, _ = build_price(asked.machine)
    table = prices() if asked.instance in prices() else shipped_prices()
    rented = table.get(asked.instance)
    return Figures(
        rent_usd_per_gpu_hour=rented.usd_per_hour / rented.gpus,
        machine_usd=usd,
        gpus_per_machine=int(count),
        gpu_hours_per_person_month=asked.gpu_hours,
        source=f"{asked.machine} from parts (estimate), {asked.instance} of {rented.date}, "
        f"{asked.gpu_hours:g} GPU-hours per person and month assumed",
    )


def plan_figures(plan: Plan, result: PlanResult) -> Figures | None:
    """What the plan found to buy and to rent by the hour; None where it found only one of both."""
    servers = {server.id: server for server in servers_of(plan)}
    choices = result.shown
    bought = next((choice for choice in choices if servers[choice.offer].buy_usd is not None), None)
    rented = [(c.usd_per_run, servers[c.offer]) for c in choices if c.way == "on-demand"]
    rented += [(c.rest.usd_per_run, servers[c.rest.offer]) for c in choices if c.rest is not None]
    hourly = [(usd, server) for usd, server in rented if server.rent_usd_per_hour is not None]
    if bought is None or not hourly:
        return None
    machine = servers[bought.offer]
    _, instance = min(hourly, key=lambda one: one[0])
    gpu_hours = plan.runs_per_month * bought.gpus * bought.run_seconds / 3600
    return Figures(
        rent_usd_per_gpu_hour=(instance.rent_usd_per_hour or 0.0) / instance.gpus,
        machine_usd=machine.buy_usd or 0.0,
        gpus_per_machine=machine.gpus,
        gpu_hours_per_person_month=gpu_hours / plan.people.researchers,
        source=f"the plan: {_dated(machine)}, {_dated(instance)}",
    )


def _dated(server: PricedServer) -> str:
    return (
        f"{server.name} of {server.price_date}" if server.price_date else f"{server.name} as given"
    )
