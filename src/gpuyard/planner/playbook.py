"""Advise a team: its stage, where to run, and the next step, from the rulebook and the facts about the team."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gpuyard import units
from gpuyard.catalog import gpus as gpus_table
from gpuyard.catalog import prices
from gpuyard.catalog.prices import shipped_prices
from gpuyard.catalog.tiers import price_build, tiers
from gpuyard.choices import Load
from gpuyard.planner.result import PlanResult
from gpuyard.planner.rulebook import Fact, Reason, Stage, StageFigures, load_rulebook
from gpuyard.planner.search import make_plan, read_plan_premises, read_plan_workload
from gpuyard.planner.servers import PricedServer, list_servers
from gpuyard.planner.throughput import EXCHANGES
from gpuyard.predictor import STRATEGIES
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import Acquisition
from gpuyard.workloads import profile_model

Where = Literal["cloud", "on-premises", "colocation", "hybrid", "either"]
_LOCATIONS: dict[Acquisition, Where] = {
    "buy": "on-premises",
    "colocate": "colocation",
    "keep": "on-premises",
    "hybrid": "hybrid",
}
# Power of one GPU with its share of the machine and of the cooling: 700 W boards in a 10.2 kW machine of eight
# (DGX H100), and the mean PUE of 1.58 from Uptime (2023).
_KW_PER_GPU = 10.2 / 8 * 1.58
_MAX_MONTHS = 120
_GPUS_PER_SERVER = 8


@dataclass(frozen=True)
class Team:
    """The answers to the playbook's questions."""

    researchers: int = 1
    hires_per_year: float = 0.0
    gpus: int = 1  # needed at once today
    data_stays: bool = False
    load: Load = "steady"
    inference: bool = False
    data_bytes: float = 0.0
    memory_bytes: float = 0.0  # of GPUs, for one copy of the largest model in training; 0: unknown
    site_watts: float | None = None
    watts: float | None = None  # of the GPUs with machines and cooling; None: estimated

    def facts(self, growth: float = 1.0) -> dict[str, Fact]:
        """Return the facts of the rulebook after the team has grown by a factor."""
        kw = (self.watts / 1000 if self.watts else self.gpus * _KW_PER_GPU) * growth
        return {
            "researchers": self.researchers * growth,
            "gpus": self.gpus * growth,
            "memory_gb": self.memory_bytes / 1e9,
            "data_tb": self.data_bytes / 1e12,
            "kw": kw,
            "site_has_power": self.site_watts is None or kw <= self.site_watts / 1000,
            "data_stays": self.data_stays,
            "load": self.load,
            "inference": self.inference,
        }


@dataclass(frozen=True)
class NextStep:
    """The next stage, its trigger, and when growth alone leads to it."""

    stage: str
    trigger: str
    months: int | None  # None: growth does not lead to it within ten years


@dataclass(frozen=True)
class AdvisedTool:
    """A recommended tool."""

    name: str
    purpose: str
    url: str
    vendor: str | None = None  # of the GPUs that it is for; None: of any


@dataclass(frozen=True)
class StageMachines:
    """The product tier of a stage's machines, and the price range of one."""

    tier: str
    min_usd: float
    max_usd: float
    oldest_price: str


@dataclass(frozen=True)
class Advice:
    """The playbook's advice for a team."""

    team: Team
    gpus_from: str  # source of the number of GPUs
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
    prices_from: str | None  # None: no command contains a price

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Figures:
    """The figures in the commands: the price of renting a GPU, of buying a machine, and a person's GPU-hours."""

    rent_usd_per_gpu_hour: float
    machine_usd: float
    gpus_per_machine: int
    gpu_hours_per_person_month: float
    source: str

    def format_arguments(self) -> dict[str, str]:
        """Format the figures for a command line."""
        return {
            "rent": f"'${self.rent_usd_per_gpu_hour:.2f}/h'",
            "buy": f"'${self.machine_usd:.0f}'",
            "gpus_per_machine": str(self.gpus_per_machine),
            "gpu_hours": f"{self.gpu_hours_per_person_month:.3g}",
        }


@dataclass(frozen=True)
class PlanAnswer:
    """A plan's team, the GPUs it needs, and the location and prices of the plan's choice."""

    team: Team
    gpus_from: str
    figures: Figures | None = None
    where: Where | None = None  # None if no option meets the goal
    summary: str = ""  # the choice, or why there is none
    vendor: str | None = None  # of the chosen GPUs; None: there is no choice


def read_team(plan: Plan, directory: Path, calibration: Calibration | None = None) -> PlanAnswer:
    """Return the team of a plan and the plan's own answer."""
    answers = plan.playbook
    gpus, watts, source, result = answers.gpus_now, None, "the plan's file", None
    # a workload without a dataset cannot be searched, and need not be if the number of GPUs is given
    if gpus is None or read_plan_workload(plan, directory).dataset is not None:
        result = make_plan(plan, directory, calibration)
        if gpus is None:
            gpus, watts, source = _count_gpus(result)
    memory = answers.memory
    if memory is None:
        memory = estimate_training_memory(read_plan_workload(plan, directory))
    team = Team(
        researchers=plan.people.researchers,
        hires_per_year=plan.people.hires_per_year,
        gpus=gpus,
        data_stays=plan.policy.data_stays,
        load=answers.load,
        inference=answers.inference,
        data_bytes=answers.data or 0.0,
        memory_bytes=memory,
        site_watts=read_plan_premises(plan, directory).room_watts,
        watts=watts,
    )
    if result is None:
        return PlanAnswer(team, source)
    figures = find_plan_figures(plan, result)
    winner = result.winner
    if winner is None:
        summary = "No option of the plan meets its goal, so rules of thumb decide where to run."
        return PlanAnswer(team, source, figures, None, summary)
    summary = f"The plan's choice: {winner.summary}, {winner.price}."
    where, vendor = _LOCATIONS.get(winner.way, "cloud"), gpus_table().get(winner.gpu).vendor
    return PlanAnswer(team, source, figures, where, summary, vendor)


def estimate_training_memory(workload: Workload) -> float:
    """Return the GPU memory that one copy of the workload's model needs at its batch, without sharding."""
    batch, gpus = np.array([float(workload.batch_per_gpu)]), np.ones(1)
    memory = STRATEGIES["ddp"].memory_bytes(
        workload, profile_model(workload), EXCHANGES["none"], batch_per_gpu=batch, gpus=gpus
    )
    return float(memory[0])


def _count_gpus(result: PlanResult) -> tuple[int, float | None, str]:
    """Return the GPUs that the plan needs, their watts if bought, and the source of both."""
    nearest = (constraint.nearest for constraint in result.binding if constraint.nearest)
    chosen = result.winner or next(nearest, None)
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
    """Advise a team from the rulebook; if a plan has made a choice, that choice decides where to run."""
    facts = team.facts()
    stage = _find_stage(facts)
    without_memory = _find_stage({**facts, "memory_gb": 0.0})
    applicable = [reason for reason in load_rulebook().reason if reason.applies_to(facts)]
    where, reasons = _decide_where(applicable)
    if answer is not None and answer.where is not None:
        where, reasons = answer.where, _sort_reasons(answer.where, applicable)
    if answer is not None and answer.summary:
        reasons = (answer.summary, *reasons)
    arguments = {
        "researchers": team.researchers,
        "hires_per_year": f"{team.hires_per_year:g}",
        "gpus": team.gpus,
        "servers": max(1, math.ceil(team.gpus / _GPUS_PER_SERVER)),
        "load": team.load,
        "plan": plan_file or "team.plan.yaml",
    }
    figures = (answer.figures if answer else None) or load_stage_figures(stage.figures)
    arguments |= figures.format_arguments()
    commands = tuple(command.format(**arguments) for command in stage.commands)
    return Advice(
        team=team,
        gpus_from=gpus_from,
        stage=stage.id,
        stage_name=stage.name,
        why=stage.why if stage is without_memory else _explain_memory(team, without_memory),
        where=where,
        reasons=reasons,
        software=stage.software,
        tools=tuple(
            AdvisedTool(t.name, t.purpose, t.url, t.vendor)
            for t in load_rulebook().select_tools(stage, answer.vendor if answer else None)
        ),
        machines=_price_machines(stage),
        next=_find_next_step(team, stage),
        commands=commands,
        prices_from=figures.source if any("{rent}" in line for line in stage.commands) else None,
    )


def _price_machines(stage: Stage) -> StageMachines:
    tier = tiers().get(stage.tier)
    least, most = tier.least.total_usd, tier.most.total_usd
    return StageMachines(tier.name.lower(), least, most, tier.price_date.isoformat())


def _find_stage(facts: dict[str, Fact]) -> Stage:
    return next(stage for stage in load_rulebook().stage if stage.applies_to(facts))


def _explain_memory(team: Team, smaller: Stage) -> str:
    """Explain that memory alone leads past a smaller stage."""
    available = float(smaller.when["memory_gb_at_most"])
    return (
        f"The team's size fits {smaller.name}, but a model needs {units.format_bytes(team.memory_bytes)} of GPU memory, "
        f"and the GPUs of one machine there have at most {available:,.0f} GB together. Before you move, try a smaller "
        "batch, checkpointing, or a leaner optimizer: `gpuyard predict MODEL --on CLUSTER --why`."
    )


def _decide_where(reasons: list[Reason]) -> tuple[Where, tuple[str, ...]]:
    """Decide where to run, and return the reasons for it."""
    deciding = [reason for reason in reasons if reason.decides]
    if deciding:
        side = deciding[0].side
        same = [reason.text for reason in reasons if reason.side == side and not reason.decides]
        return side, (deciding[0].text, *same)
    sides = {reason.side for reason in reasons}
    texts = tuple(reason.text for reason in reasons)
    if len(sides) == 2:
        return "hybrid", texts
    return (next(iter(sides)), texts) if sides else ("either", texts)


def _sort_reasons(where: Where, reasons: list[Reason]) -> tuple[str, ...]:
    """Return the reasons for the plan's choice, and then the rules of thumb against it."""
    owned = where in {"on-premises", "colocation"}
    side = "on-premises" if owned else where
    in_favor = [reason.text for reason in reasons if where == "hybrid" or reason.side == side]
    against = [reason.text for reason in reasons if where != "hybrid" and reason.side != side]
    favored = "a cloud" if owned else "buying"
    rules = (f"A rule of thumb favors {favored}: {text[0].lower()}{text[1:]}" for text in against)
    return (*in_favor, *rules)


def _find_next_step(team: Team, stage: Stage) -> NextStep | None:
    """Return the stage that growth leads to first; without growth, the following one in the table."""
    stages = load_rulebook().stage
    for month in range(1, _MAX_MONTHS + 1):
        growth = 1 + team.hires_per_year * month / 12 / team.researchers
        later_stage = _find_stage(team.facts(growth))
        if later_stage.id != stage.id:
            return NextStep(later_stage.name, stage.trigger, month)
    following = stages[stages.index(stage) + 1 :]
    next_stage = next(
        (s for s in following if s.when.get("data_stays", team.data_stays) == team.data_stays), None
    )
    return NextStep(next_stage.name, stage.trigger, None) if next_stage else None


def load_stage_figures(names: StageFigures) -> Figures:
    """Look up the prices of the stage's machine, built from parts, and of its instance."""
    gpus_per_machine = names.machine.partition("/")[2].partition("x-")[0]
    built = price_build(names.machine)
    table = prices() if names.instance in prices() else shipped_prices()
    rented = table.get(names.instance)
    return Figures(
        rent_usd_per_gpu_hour=rented.usd_per_hour / rented.gpus,
        machine_usd=built.usd,
        gpus_per_machine=int(gpus_per_machine),
        gpu_hours_per_person_month=names.gpu_hours,
        source=f"{names.machine} from parts (estimate, ${built.price_range}), {names.instance} of {rented.date}, "
        f"{names.gpu_hours:g} GPU-hours per person and month assumed",
    )


def find_plan_figures(plan: Plan, result: PlanResult) -> Figures | None:
    """Return the prices of the plan's best bought machine and instance; None if it has only one of them."""
    servers = {server.id: server for server in list_servers(plan)}
    choices = result.all_choices
    bought = next((choice for choice in choices if servers[choice.offer].buy_usd is not None), None)
    rented = [(c.usd_per_run, servers[c.offer]) for c in choices if c.way == "on-demand"]
    rented += [(c.rest.usd_per_run, servers[c.rest.offer]) for c in choices if c.rest is not None]
    hourly = [(usd, server) for usd, server in rented if server.rent_usd_per_hour is not None]
    if bought is None or not hourly:
        return None
    machine = servers[bought.offer]
    _, instance = min(hourly, key=lambda pair: pair[0])
    gpu_hours = plan.runs_per_month * bought.gpus * bought.run_seconds / 3600
    return Figures(
        rent_usd_per_gpu_hour=(instance.rent_usd_per_hour or 0.0) / instance.gpus,
        machine_usd=machine.buy_usd or 0.0,
        gpus_per_machine=machine.gpus,
        gpu_hours_per_person_month=gpu_hours / plan.people.researchers,
        source=f"the plan: {_format_dated(machine)}, {_format_dated(instance)}",
    )


def _format_dated(server: PricedServer) -> str:
    return (
        f"{server.name} of {server.price_date}" if server.price_date else f"{server.name} as given"
    )
