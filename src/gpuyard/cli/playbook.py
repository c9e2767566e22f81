"""`gpuyard playbook`: where a team stands, where to run, and what comes next."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import chosen_calibration
from gpuyard.cli.output import JsonOption, show, working
from gpuyard.errors import UnknownName

if TYPE_CHECKING:
    from gpuyard.planner.playbook import PlanAnswer
    from gpuyard.specs.offers import Load

_MOST = 1_000_000


def _count(text: str | int, least: int = 0) -> int:
    """People, or GPUs."""
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a whole number, got {text!r}") from None
    if not least <= number <= _MOST:
        raise typer.BadParameter(f"expected a whole number from {least} to {_MOST:,}, got {text}")
    return number


def _people(text: str | int) -> int:
    return _count(text, least=1)


def _hires(text: str | float) -> float:
    """They may join less than once a year."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, got {text!r}") from None
    if not 0 <= number <= _MOST:
        raise typer.BadParameter(f"expected a number from 0 to {_MOST:,}, got {text}")
    return number


def playbook(
    file: Annotated[
        Path | None, typer.Argument(help="A *.plan.yaml to read the answers from.", metavar="FILE")
    ] = None,
    *,
    researchers: Annotated[
        int | None, typer.Option(parser=_people, metavar="N", help="People who train models.")
    ] = None,
    hires_per_year: Annotated[
        float | None, typer.Option(parser=_hires, metavar="N", help="People who join per year.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(parser=_count, metavar="N", help="GPUs needed at once today.")
    ] = None,
    load: Annotated[
        str | None, typer.Option(metavar="LOAD", help="steady, working-hours, spiky.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="SIZE", help="All data, e.g. '2 TB'.")] = None,
    data_stays: Annotated[
        bool | None,
        typer.Option("--data-stays/--data-may-leave", help="Must data stay on site?"),
    ] = None,
    inference: Annotated[
        bool | None,
        typer.Option("--inference/--no-inference", help="Are models served 24/7?"),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Say how a team of this size should run its GPUs, where, and what comes next.

    Without FILE, on a terminal, it asks for what no option answers.

    Example: gpuyard playbook --researchers 12 --gpus 16 --load steady
    """
    from gpuyard import units
    from gpuyard.planner.playbook import Team, advise
    from gpuyard.report.answers.playbook import playbook_answer

    answer = None
    if file is not None:
        own = {"gpus": gpus, "researchers": researchers, "hires_per_year": hires_per_year}
        answer = _from_plan(file, own, data_stays)
        team, gpus_from = answer.team, "your answer" if gpus is not None else answer.gpus_from
    else:
        team, gpus_from = Team(), "your answer" if gpus is not None else "assumed to be one"
    given: dict[str, Any] = {
        "researchers": researchers,
        "hires_per_year": hires_per_year,
        "gpus": gpus,
        "load": None if load is None else _load(load),
        "data_bytes": None if data is None else units.parse_bytes(data),
        "data_stays": data_stays,
        "inference": inference,
    }
    answered = {name: value for name, value in given.items() if value is not None}
    if file is None and sys.stdin.isatty() and not json_output:
        answered |= _ask({name for name, value in given.items() if value is None})
        gpus_from = "your answer"
    plan_file = str(file) if file else None
    advice = advise(replace(team, **answered), gpus_from, plan_file, answer)
    show(playbook_answer(advice), json_output=json_output)


def _from_plan(
    file: Path, own: dict[str, int | float | None], data_stays: bool | None
) -> "PlanAnswer":
    """The plan is searched with what the command line says otherwise."""
    from gpuyard.catalog.specfiles import read_plan
    from gpuyard.planner.playbook import team_of

    asked = read_plan(file)
    said = {name: value for name, value in own.items() if value is not None}
    gpus = {"gpus_now": said.pop("gpus")} if "gpus" in said else {}
    stays = {} if data_stays is None else {"data_stays": data_stays}
    asked = asked.model_copy(
        update={
            "playbook": asked.playbook.model_copy(update=gpus),
            "people": asked.people.model_copy(update=said),
            "policy": asked.policy.model_copy(update=stays),
        }
    )
    constants = chosen_calibration(None)  # as `gpuyard plan` takes them
    with working("searching"):
        return team_of(asked, file.parent, constants)


def _load(text: str) -> "Load":
    from typing import get_args

    from gpuyard.specs.offers import Load

    for word in get_args(Load):
        if word == text:
            return word  # type: ignore[no-any-return]
    raise UnknownName("load", text, get_args(Load))


def _ask(missing: set[str]) -> dict[str, Any]:
    """The questions that are still open, one a line."""
    from gpuyard import units

    found: dict[str, Any] = {}
    if "researchers" in missing:
        found["researchers"] = _prompt("How many people train models?", 1, _people)
    if "hires_per_year" in missing:
        found["hires_per_year"] = _prompt("How many join each year?", 0, _hires)
    if "gpus" in missing:
        found["gpus"] = _prompt("How many GPUs are needed at once today?", 1, _count)
    if "load" in missing:
        text = typer.prompt("Is the load steady, working-hours or spiky?", "steady", err=True)
        found["load"] = _load(text.strip())
    if "data_bytes" in missing:
        text = typer.prompt("How much training data is there?", "1 TB", err=True)
        found["data_bytes"] = units.parse_bytes(text)
    if "data_stays" in missing:
        found["data_stays"] = typer.confirm("Must data stay in the building?", False, err=True)
    if "inference" in missing:
        found["inference"] = typer.confirm(
            "Do models serve users around the clock?", False, err=True
        )
    return found


def _prompt(question: str, default: int, parse: Callable[[str], float]) -> float:
    """Asks again until it can be."""
    answer: float = typer.prompt(question, default, value_proc=parse, err=True)
    return answer
