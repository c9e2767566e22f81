"""`gpuyard playbook`: advise a team on how and where to run its GPUs, and on the next step."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from gpuyard.choices import Load
from gpuyard.cli.output import JsonOption, show, show_status

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
    budget: Annotated[
        str | None,
        typer.Option(metavar="PRICE", help="Without FILE: total over three years, e.g. '$60000'."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="WORKLOAD", help="With --budget: model to train.", show_default="resnet50"
        ),
    ] = None,
    researchers: Annotated[
        int | None, typer.Option(parser=_parse_people, metavar="N", help="People who train models.")
    ] = None,
    hires_per_year: Annotated[
        float | None,
        typer.Option(parser=_parse_hires, metavar="NUMBER", help="People who join per year."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(parser=_parse_count, metavar="N", help="GPUs needed at once today."),
    ] = None,
    load: Annotated[Load | None, typer.Option(help="Shape of the load.")] = None,
    data_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of all data, e.g. '2 TB'.")
    ] = None,
    gpu_memory: Annotated[
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
    from gpuyard.api.playbook import playbook as advise

    answers: dict[str, Any] = {
        "researchers": researchers,
        "hires_per_year": hires_per_year,
        "gpus": gpus,
        "load": load,
        "data": data_size,
        "memory": gpu_memory,
        "data_stays": data_stays,
        "inference": inference,
    }
    if file is None and budget is None and sys.stdin.isatty() and not json_output:
        answers |= _ask({name for name, value in answers.items() if value is None})
    with show_status("searching"):
        advice = advise(file, budget=budget, model=model, **answers)
    show(advice.answer, json_output=json_output)


def _ask(missing: set[str]) -> dict[str, Any]:
    """Ask for the missing answers, one per line."""
    answers: dict[str, Any] = {}
    if "researchers" in missing:
        answers["researchers"] = _prompt("How many people train models?", 1, _parse_people)
    if "hires_per_year" in missing:
        answers["hires_per_year"] = _prompt("How many join each year?", 0, _parse_hires)
    if "gpus" in missing:
        answers["gpus"] = _prompt("How many GPUs are needed at once today?", 1, _parse_count)
    if "load" in missing:
        question = "Is the load steady, working-hours, or spiky?"
        answers["load"] = typer.prompt(question, "steady", value_proc=_parse_load, err=True)
    if "data" in missing:
        answers["data"] = typer.prompt("How much training data is there?", "1 TB", err=True)
    if "memory" in missing:
        answers["memory"] = typer.prompt("How much GPU memory does a run need?", "16 GB", err=True)
    if "data_stays" in missing:
        answers["data_stays"] = typer.confirm("Must data stay in the building?", False, err=True)
    if "inference" in missing:
        answers["inference"] = typer.confirm(
            "Do models serve users around the clock?", False, err=True
        )
    return answers


def _parse_load(text: str) -> str:
    if text.strip() not in get_args(Load):
        raise typer.BadParameter(f"choose from: {', '.join(get_args(Load))}")
    return text.strip()


def _prompt(question: str, default: int, parse: Callable[[str], float]) -> float:
    """Ask until the answer is valid."""
    answer: float = typer.prompt(question, default, value_proc=parse, err=True)
    return answer
