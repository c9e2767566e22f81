"""`gpuyard playbook`: where a team stands, where to run, and what comes next."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import JsonOption, console, print_json
from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.planner.playbook import Advice, Figures, Team
    from gpuyard.specs.offers import Load


def playbook(
    file: Annotated[
        Path | None, typer.Argument(help="A *.plan.yaml to read the answers from.", metavar="FILE")
    ] = None,
    *,
    researchers: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="People who train models.")
    ] = None,
    hires_per_year: Annotated[
        float | None, typer.Option(min=0, max=1_000_000, help="How many join each year.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, max=1_000_000, help="GPUs that are needed at once, today.")
    ] = None,
    load: Annotated[str | None, typer.Option(help="steady, working-hours or spiky.")] = None,
    data: Annotated[str | None, typer.Option(help="All training data, e.g. '2 TB'.")] = None,
    data_stays: Annotated[
        bool | None,
        typer.Option("--data-stays/--data-may-leave", help="May data leave the building?"),
    ] = None,
    inference: Annotated[
        bool | None,
        typer.Option("--inference/--no-inference", help="Do models serve users around the clock?"),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Name the stage a team is at, cloud or own machines and why, the software, and the next step.

    Without FILE and on a terminal it asks what no option answers.

    Example: gpuyard playbook --researchers 12 --gpus 16 --load steady
    """
    from gpuyard import units
    from gpuyard.planner.playbook import Team, advise

    figures = None
    if file is not None:
        team, gpus_from, figures = _from_plan(file, gpus)
    else:
        team, gpus_from = Team(), "your answer" if gpus is not None else "taken as one"
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
    advice = advise(replace(team, **answered), gpus_from, plan_file, figures)
    if json_output:
        print_json(advice.as_json())
        return
    _print(advice)


def _from_plan(file: Path, gpus: int | None) -> tuple["Team", str, "Figures | None"]:
    from gpuyard.catalog.specfiles import read_plan
    from gpuyard.planner.playbook import team_of

    asked = read_plan(file)
    if gpus is not None:
        own = asked.playbook.model_copy(update={"gpus_now": gpus})
        asked = asked.model_copy(update={"playbook": own})
    with console(stderr=True).status("searching"):
        team, source, figures = team_of(asked, file.parent)
    return team, source if gpus is None else "your answer", figures


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
        found["researchers"] = _number("How many people train models?", 1, least=1)
    if "hires_per_year" in missing:
        found["hires_per_year"] = float(_number("How many join each year?", 0))
    if "gpus" in missing:
        found["gpus"] = _number("How many GPUs are needed at once, today?", 1)
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


def _number(question: str, default: int, least: int = 0) -> int:
    number = int(typer.prompt(question, default, type=int, err=True))
    if number < least:
        raise UserMistake(f"{number} can't be: it must be {least} or more")
    return number


def _print(advice: "Advice") -> None:
    from gpuyard import units

    out = console()

    def say(text: str) -> None:
        out.print(text, highlight=False, markup=False)

    team = advice.team
    say(
        f"{team.researchers} researcher{'s' if team.researchers > 1 else ''}, "
        f"{team.gpus} GPU{'s' if team.gpus != 1 else ''} ({advice.gpus_from}), {team.load} load"
    )
    say(f"Stage: {advice.stage_name}")
    say(f"  {advice.why}")
    say(f"Where: {advice.where}")
    for reason in advice.reasons or ("Nothing that you said speaks for either side.",):
        say(f"  - {reason}")
    say("Software at this scale:")
    for software in advice.software:
        say(f"  - {software}")
    if advice.next:
        months = advice.next.months
        when = f"; at this growth in {units.format_months(months)}" if months else ""
        say(f"Next: {advice.next.stage}, when {advice.next.trigger}{when}")
    say("Commands:")
    for command in advice.commands:
        say(f"  {command}")
    if advice.prices_from:
        say(f"Prices in them: {advice.prices_from}")
