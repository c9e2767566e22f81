"""`gpuyard playbook`: advise a team on how and where to run its GPUs, and on the next step."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.api.inputs import load_calibration
from gpuyard.cli.output import JsonOption, show, show_status
from gpuyard.errors import UnknownName

if TYPE_CHECKING:
    from gpuyard.planner.playbook import PlanAnswer
    from gpuyard.specs.offers import Load

_MAX_COUNT = 1_000_000


def _parse_count(text: str | int, minimum: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a whole number, got {text!r}") from None
    if not minimum <= number <= _MAX_COUNT:
        raise typer.BadParameter(
            f"expected a whole number from {minimum} to {_MAX_COUNT:,}, got {text}"
        )
    return number


def _parse_people(text: str | int) -> int:
    return _parse_count(text, minimum=1)


def _parse_hires(text: str | float) -> float:
    """Parse hires per year, which may be a fraction."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, got {text!r}") from None
    if not 0 <= number <= _MAX_COUNT:
        raise typer.BadParameter(f"expected a number from 0 to {_MAX_COUNT:,}, got {text}")
    return number


def playbook(
    file: Annotated[
        Path | None,
        typer.Argument(help="Plan file (*.plan.yaml) with the answers.", metavar="FILE"),
    ] = None,
    *,
    researchers: Annotated[
        int | None, typer.Option(parser=_parse_people, metavar="N", help="People who train models.")
    ] = None,
    hires_per_year: Annotated[
        float | None,
        typer.Option(parser=_parse_hires, metavar="N", help="People who join per year."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(parser=_parse_count, metavar="N", help="GPUs needed at once today."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="LOAD", help="Shape of the load: steady, working-hours, or spiky."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of all data, e.g. '2 TB'.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="GPU memory that training the largest model needs, e.g. '80 GB'."
        ),
    ] = None,
    data_stays: Annotated[
        bool | None,
        typer.Option("--data-stays/--data-may-leave", help="Whether data must stay on site."),
    ] = None,
    inference: Annotated[
        bool | None,
        typer.Option("--inference/--no-inference", help="Whether models are served 24/7."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Advise a team on how and where to run its GPUs, and on the next step.

    Without FILE, it asks at the terminal for answers that no option gives.

    Example: gpuyard playbook --researchers 12 --gpus 16 --load steady
    """
    from gpuyard import units
    from gpuyard.planner.playbook import Team, advise
    from gpuyard.report.answers.playbook import playbook_answer

    answer = None
    if file is not None:
        own = {"gpus": gpus, "researchers": researchers, "hires_per_year": hires_per_year}
        answer = _read_plan_answer(file, own, data_stays)
        team, gpus_from = answer.team, "your answer" if gpus is not None else answer.gpus_from
    else:
        team, gpus_from = Team(), "your answer" if gpus is not None else "assumed to be one"
    options: dict[str, Any] = {
        "researchers": researchers,
        "hires_per_year": hires_per_year,
        "gpus": gpus,
        "load": None if load is None else _parse_load(load),
        "data_bytes": None if data is None else units.parse_bytes(data),
        "memory_bytes": None if memory is None else units.parse_bytes(memory),
        "data_stays": data_stays,
        "inference": inference,
    }
    answers = {name: value for name, value in options.items() if value is not None}
    if file is None and sys.stdin.isatty() and not json_output:
        answers |= _ask({name for name, value in options.items() if value is None})
        gpus_from = "your answer"
    plan_file = str(file) if file else None
    advice = advise(replace(team, **answers), gpus_from, plan_file, answer)
    show(playbook_answer(advice), json_output=json_output)


def _read_plan_answer(
    file: Path, own: dict[str, int | float | None], data_stays: bool | None
) -> "PlanAnswer":
    """Search the plan, after the options of the command line have replaced its values."""
    from gpuyard.catalog.specfiles import read_plan
    from gpuyard.planner.playbook import read_team

    plan = read_plan(file)
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
    constants = load_calibration(None)  # like `gpuyard plan`
    with show_status("searching"):
        return read_team(plan, file.parent, constants)


def _parse_load(text: str) -> "Load":
    from typing import get_args

    from gpuyard.specs.offers import Load

    for word in get_args(Load):
        if word == text:
            return word  # type: ignore[no-any-return]
    raise UnknownName("load", text, get_args(Load))


def _ask(missing: set[str]) -> dict[str, Any]:
    """Ask for the missing answers, one per line."""
    from gpuyard import units

    answers: dict[str, Any] = {}
    if "researchers" in missing:
        answers["researchers"] = _prompt("How many people train models?", 1, _parse_people)
    if "hires_per_year" in missing:
        answers["hires_per_year"] = _prompt("How many join each year?", 0, _parse_hires)
    if "gpus" in missing:
        answers["gpus"] = _prompt("How many GPUs are needed at once today?", 1, _parse_count)
    if "load" in missing:
        text = typer.prompt("Is the load steady, working-hours, or spiky?", "steady", err=True)
        answers["load"] = _parse_load(text.strip())
    if "data_bytes" in missing:
        text = typer.prompt("How much training data is there?", "1 TB", err=True)
        answers["data_bytes"] = units.parse_bytes(text)
    if "memory_bytes" in missing:
        text = typer.prompt("How much GPU memory does a run need?", "16 GB", err=True)
        answers["memory_bytes"] = units.parse_bytes(text)
    if "data_stays" in missing:
        answers["data_stays"] = typer.confirm("Must data stay in the building?", False, err=True)
    if "inference" in missing:
        answers["inference"] = typer.confirm(
            "Do models serve users around the clock?", False, err=True
        )
    return answers


def _prompt(question: str, default: int, parse: Callable[[str], float]) -> float:
    """Ask until the answer is valid."""
    answer: float = typer.prompt(question, default, value_proc=parse, err=True)
    return answer
