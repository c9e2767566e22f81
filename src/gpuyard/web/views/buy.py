"""Buy: which machines to rent or buy for a goal, when buying is cheaper, and how many GPUs to own if the rest is rented."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field

from gpuyard.catalog.models import models
from gpuyard.web.auth import Identity
from gpuyard.web.inputs import choose_workload, private_data
from gpuyard.web.page import (
    Computed,
    format_options,
    is_fragment,
    render,
    render_answer,
    render_json,
)
from gpuyard.web.work_limit import heavy

if TYPE_CHECKING:
    from gpuyard.api.plan import PlanAnswer
    from gpuyard.api.result import Result

router = APIRouter()
_DEFAULT = "default"
_YEARS = 3.0
"""The horizon of a plan that names none."""
Money = Annotated[float, Field(ge=0, le=1e9)]


class CostQuery(BaseModel):
    """The parameters of rent or buy."""

    rent: Annotated[float, Field(gt=0, le=10_000, description="dollars per hour")] = 20.0
    buy: Annotated[float, Field(gt=0, le=1e9, description="dollars")] = 250_000.0
    years: Annotated[float, Field(ge=0.5, le=10)] = 3.0
    utilization: Annotated[int, Field(ge=1, le=100, description="percent of all hours")] = 60
    power: Annotated[float, Field(ge=0, le=10_000, description="kW under load")] = 10.0
    tariff: Annotated[float, Field(ge=0, le=5, description="dollars per kWh")] = 0.2
    staff: Annotated[float, Field(ge=0, le=744, description="hours of staff per month")] = 8.0


def compare_costs(query: CostQuery) -> "tuple[Result[Any], Computed]":
    """Return rent or buy as `gpuyard cost` gives it."""
    from gpuyard.api.cost import cost

    options: dict[str, Any] = {
        "utilization": f"{query.utilization}%",
        "horizon": f"{query.years:g} years",
        "power": f"{query.power:g} kW",
        "tariff": f"${query.tariff:g}/kWh",
        "staff_hours": query.staff,
        "staff": "$60/h",
    }
    if not query.power or not query.tariff:
        options.pop("power")
        options.pop("tariff")
    rent, buy = f"${query.rent:g}/h", f"${query.buy:.0f}"
    result = cost(rent, buy, tornado=True, page=True, **options)
    words = ["cost", "--rent", rent, "--buy", buy, "--tornado", *format_options(options)]
    notes = ("The tornado varies each input by 20%. Staff costs $60 per hour.",)
    return result, Computed(words, notes, "docs/cost.md")


@router.get("/buy/cost", include_in_schema=False)
def show_cost(request: Request, query: Annotated[CostQuery, Query()]) -> Response:
    result, computed = compare_costs(query)
    return render_answer(
        request,
        "cost.html.jinja",
        result.answer,
        computed,
        view="buy",
        query=query,
        address="/buy/cost",
    )


@router.get("/buy/cost.json", summary="Rent or buy")
def get_cost(query: Annotated[CostQuery, Query()]) -> Response:
    """Return what `gpuyard cost --json` prints."""
    return render_json(compare_costs(query)[0].answer.document)


class HybridQuery(BaseModel):
    """The parameters of a mix of owned and rented GPUs."""

    load: Literal["steady", "working-hours", "spiky"] = "working-hours"
    gpus: Annotated[int, Field(ge=1, le=100_000, description="GPUs needed at busy times")] = 16
    base: Annotated[int, Field(ge=0, le=100, description="percent of them at other times")] = 10
    rent: Annotated[float, Field(gt=0, le=1000, description="dollars per GPU-hour")] = 2.5
    buy: Annotated[float, Field(gt=0, le=1e8, description="dollars per GPU")] = 30_000.0
    years: Annotated[float, Field(ge=0.5, le=10)] = 3.0
    power: Annotated[float, Field(ge=0, le=100, description="kW per GPU under load")] = 1.0
    tariff: Annotated[float, Field(ge=0, le=5, description="dollars per kWh")] = 0.2


def mix_capacity(query: HybridQuery) -> "tuple[Result[Any], Computed]":
    """Return the mix as `gpuyard cost hybrid` gives it."""
    from gpuyard.api.hybrid import hybrid

    options: dict[str, Any] = {
        "load": query.load,
        "gpus": query.gpus,
        "base_share": f"{query.base}%",
        "rent": f"${query.rent:g}/h",
        "buy": f"${query.buy:.0f}",
        "horizon": f"{query.years:g} years",
    }
    if query.power and query.tariff:
        options |= {"power": f"{query.power:g} kW", "tariff": f"${query.tariff:g}/kWh"}
    words = ["cost", "hybrid", *format_options(options)]
    notes = ("The cost of every number of owned GPUs is calculated hour by hour of the demand.",)
    return hybrid(chart=True, **options), Computed(words, notes, "docs/cost.md")


@router.get("/buy/hybrid", include_in_schema=False)
def show_hybrid(request: Request, query: Annotated[HybridQuery, Query()]) -> Response:
    result, computed = mix_capacity(query)
    return render_answer(
        request,
        "hybrid.html.jinja",
        result.answer,
        computed,
        view="buy",
        query=query,
        address="/buy/hybrid",
    )


@router.get("/buy/hybrid.json", summary="How many GPUs to own if the rest is rented")
def get_hybrid(query: Annotated[HybridQuery, Query()]) -> Response:
    """Return what `gpuyard cost hybrid --json` prints."""
    return render_json(mix_capacity(query)[0].answer.document)


_Optional = Annotated[
    Annotated[int, Field(ge=0, le=10**12)] | None,
    BeforeValidator(lambda text: None if text in ("", "any", "default") else text),
]
"""A number; an empty field of a form is none."""


class PlanQuery(BaseModel):
    """The parameters of a plan."""

    model: Annotated[str, Field(max_length=80, description="catalog model")] = "resnet50"
    budget: Annotated[int, Field(ge=1, le=10**10, description="dollars")] = 60_000
    researchers: Annotated[int, Field(ge=1, le=10_000)] = 6
    runs: Annotated[
        _Optional, Field(description="runs per month; default: one per week and researcher")
    ] = None
    hours: Annotated[_Optional, Field(description="longest time of a run")] = None
    years: Annotated[float, Field(ge=0.5, le=10)] = _YEARS
    tariff: Annotated[
        str, Field(max_length=8, pattern=r"^(default|[0-9.]*)$", description="dollars per kWh")
    ] = _DEFAULT
    samples: Annotated[_Optional, Field(description="samples of the dataset")] = None
    epochs: Annotated[_Optional, Field(description="default: the usual number")] = None


def make_plan(query: PlanQuery, identity: Identity) -> "tuple[PlanAnswer, Computed]":
    """Return the plan as `gpuyard plan` makes it."""
    from gpuyard.api.plan import plan

    workload = choose_workload(query.model, "")
    options: dict[str, Any] = {
        "budget": f"${query.budget}",
        "researchers": query.researchers,
        "model": workload,
        "runs_per_month": float(query.runs) if query.runs else None,
        "time_per_run": f"{query.hours} h" if query.hours else None,
        "horizon": f"{query.years:g} years" if query.years != _YEARS else None,
        "tariff": None if query.tariff in ("", _DEFAULT) else f"${query.tariff}/kWh",
        "samples": query.samples or None,
        "epochs": query.epochs or None,
    }
    goal = {name: value for name, value in options.items() if value is not None}
    key = ("plan", identity.is_own, *goal.items())
    answer = heavy.run(
        key, lambda: plan(chart=True, why=True, **goal, **private_data(identity.is_own))
    )
    words = ["plan", "--why", *format_options(goal)]
    notes = (
        "Every offer, number of machines, network, batch, and remedy is predicted and priced; the front has those that "
        "no other beats in both time and cost. Mixes of owned and rented machines are candidates, too.",
    )
    return answer, Computed(words, notes, "docs/plan.md")


@router.get("/buy", include_in_schema=False)
def show_plan(request: Request, query: Annotated[PlanQuery, Query()]) -> Response:
    answer, computed = make_plan(query, request.state.identity)
    return render(
        request,
        "plan_result.html.jinja" if is_fragment(request) else "buy.html.jinja",
        view="buy",
        title="Buy",
        answer=answer.answer,
        front=answer.result.front,
        winner=answer.result.winner,
        computed=computed,
        query=query,
        address="/buy",
        models=list(models().ids()),
    )


@router.get("/buy.json", summary="Machines to rent or buy for a goal")
def get_plan(request: Request, query: Annotated[PlanQuery, Query()]) -> Response:
    """Return what `gpuyard plan --json` prints."""
    return render_json(make_plan(query, request.state.identity)[0].answer.document)
