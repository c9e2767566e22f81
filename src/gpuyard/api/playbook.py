"""Advise a team on how and where to run its GPUs, and on the next step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuyard import units
from gpuyard.api.inputs import load_calibration
from gpuyard.api.plan import create_plan
from gpuyard.api.result import Result, Row
from gpuyard.catalog.specfiles import read_plan
from gpuyard.errors import UserMistake
from gpuyard.planner.playbook import PlanAnswer, Team, advise, read_team
from gpuyard.report.answers.playbook import playbook_answer
from gpuyard.specs.plan import Plan

_DEFAULT_MODEL = "resnet50"


def playbook(
    file: str | Path | None = None,
    *,
    budget: str | float | None = None,
    model: str | None = None,
    researchers: int | None = None,
    hires_per_year: float | None = None,
    gpus: int | None = None,
    load: str | None = None,
    data: str | float | None = None,
    memory: str | float | None = None,
    data_stays: bool | None = None,
    inference: bool | None = None,
) -> Result[Row]:
    """Advise a team from a plan file, from a budget, or from its answers alone; answers replace those of a file."""
    if file is not None and (budget is not None or model is not None):
        raise UserMistake("a plan file has its own goal; leave out --budget and --model")
    if model is not None and budget is None:
        raise UserMistake("--model needs --budget")
    given = "your answer"
    answer: PlanAnswer | None = None
    assumed: list[str] = []
    team, gpus_from = Team(), "assumed to be one"
    if file is not None or budget is not None:
        plan, directory = Path(file) if file else None, Path(file or "").parent
        if plan is not None:
            spec = read_plan(plan)
        else:
            people = researchers or 1
            spec, assumed = create_plan(model or _DEFAULT_MODEL, budget, researchers=people)
            assumed = [text.partition(" (--")[0] for text in assumed]  # options of `plan` only
            if model is None:
                assumed.insert(0, f"training {_DEFAULT_MODEL} (--model)")
        answers = {"gpus": gpus, "researchers": researchers, "hires_per_year": hires_per_year}
        answer = _read_plan_answer(spec, directory, answers, data_stays)
        team, gpus_from = answer.team, answer.gpus_from
    options: dict[str, Any] = {
        "researchers": researchers,
        "hires_per_year": hires_per_year,
        "gpus": gpus,
        "load": load,
        "data_bytes": None if data is None else units.parse_bytes(data),
        "memory_bytes": None if memory is None else units.parse_bytes(memory),
        "data_stays": data_stays,
        "inference": inference,
    }
    team = replace(team, **{name: value for name, value in options.items() if value is not None})
    plan_file = str(file) if file else None
    advice = advise(team, given if gpus is not None else gpus_from, plan_file, answer)
    return Result(playbook_answer(advice, assumed))


def _read_plan_answer(
    plan: Plan, directory: Path, own: dict[str, int | float | None], data_stays: bool | None
) -> PlanAnswer:
    """Search the plan, after the user's answers have replaced its values."""
    people = {name: value for name, value in own.items() if value is not None}
    gpus = {"gpus_now": people.pop("gpus")} if "gpus" in people else {}
    policy = {} if data_stays is None else {"data_stays": data_stays}
    plan = plan.model_copy(
        update={
            "playbook": plan.playbook.model_copy(update=gpus),
            "people": plan.people.model_copy(update=people),
            "policy": plan.policy.model_copy(update=policy),
        }
    )
    return read_team(plan, directory, load_calibration(None))  # like `gpuyard plan`
