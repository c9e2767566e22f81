"""`gpuyard init`: write a first spec file with comments, or copy an example."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.errors import UserMistake


class FileKind(StrEnum):
    """The files that `init` writes."""

    WORKLOAD = "workload"
    CLUSTER = "cluster"
    PLAN = "plan"
    SITE = "site"
    JOB = "job"
    DEPLOYMENT = "deployment"


def init(
    kind: Annotated[
        FileKind | None, typer.Argument(help="Kind of file (default: asks at a terminal).")
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write (default: by its name).")
    ] = None,
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Value in the file, like gpus=4; repeatable."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Use the default of everything that --set leaves out.")
    ] = False,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Copy this example, and the files that it names."),
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="List the examples that are shipped with gpuyard.")
    ] = False,
) -> None:
    """Write a spec file with comments: a workload, cluster, plan, site, job, or deployment.

    At a terminal, it asks for the values that --set leaves out; elsewhere, they get their defaults.

    Example: gpuyard init cluster --set gpu=rtx-4090 --set nodes=2 --set gpus=8

    Example: gpuyard init --example resnet50
    """
    from gpuyard.api.starter_files import copy_example, create_spec, list_examples
    from gpuyard.report.terminal import print_line

    if examples:
        sys.stdout.write("".join(f"{name}\n" for name in list_examples()))
        return
    if example is not None:
        if kind is not None or set_:
            raise UserMistake("--example copies files as they are; leave out KIND and --set")
        for path in copy_example(example):
            print_line(f"Wrote {path}.")
        return
    asks = sys.stdin.isatty() and not yes
    if kind is None:
        if not asks:
            raise UserMistake(
                f"name what to write: gpuyard init {'|'.join(FileKind)}, or gpuyard init --example NAME"
            )
        kind = FileKind(_choose_kind())
    values = _parse_values(set_ or [])
    if asks:
        values |= _ask(kind, values)
    path = create_spec(kind, values, file)
    print_line(f"Wrote {path}. Its first line says how to use it.")


def _choose_kind() -> str:
    def parse(text: str) -> str:
        if text not in set(FileKind):
            raise typer.BadParameter(f"choose from: {', '.join(FileKind)}")
        return text

    question = f"What do you want to describe ({', '.join(FileKind)})?"
    return str(typer.prompt(question, "workload", value_proc=parse, err=True))


def _parse_values(texts: list[str]) -> dict[str, str]:
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserMistake(f"--set: expected NAME=VALUE, like gpus=4, got {text!r}")
        values[name] = value
    return values


def _ask(kind: str, known: dict[str, str]) -> dict[str, str]:
    """Ask for the values that the command line leaves out."""
    from gpuyard.api.starter_files import QUESTIONS

    return {
        question.name: str(typer.prompt(question.question.capitalize(), question.default, err=True))
        for question in QUESTIONS[kind]
        if question.name not in known
    }
