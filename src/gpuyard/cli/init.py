"""`gpuyard init`: write a first spec file with comments, or copy an example."""

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.api.starter_templates import VALUES, Value
from gpuyard.cli.completion import (
    complete_examples,
    complete_gpus,
    complete_models,
    complete_places,
    complete_plugs,
    complete_site_kinds,
)
from gpuyard.errors import UserMistake

app = typer.Typer(invoke_without_command=True)
_COMPLETIONS: dict[str, Callable[..., list[str]]] = {
    "model": complete_models,
    "gpu": complete_gpus,
    "country": complete_places,
    "receptacle": complete_plugs,
    "place": complete_site_kinds,
}


@app.callback(invoke_without_command=True)
def init(
    context: typer.Context,
    *,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_examples,
            help="Copy this example, and the files that it names.",
        ),
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="List the examples that are shipped with gpuyard.")
    ] = False,
) -> None:
    """Write a spec file with comments, or copy an example. Without a command, it asks at a terminal.

    Example: gpuyard init workload --model resnet50 --batch 64

    Example: gpuyard init --example resnet50
    """
    from gpuyard.api.starter_files import copy_example, list_examples
    from gpuyard.report.terminal import print_line

    if context.invoked_subcommand is not None:
        if example is not None or examples:
            raise UserMistake("--example copies files as they are; leave out the kind of file")
    elif examples:
        sys.stdout.write("".join(f"{name}\n" for name in list_examples()))
    elif example is not None:
        for path in copy_example(example):
            print_line(f"Wrote {path}.")
    elif sys.stdin.isatty():
        _write(_choose_kind(), None, {}, yes=False)
    else:
        raise UserMistake(
            f"name what to write: gpuyard init {'|'.join(VALUES)}, or gpuyard init --example NAME"
        )


def _write(kind: str, file: Path | None, values: dict[str, str], *, yes: bool) -> None:
    from gpuyard.api.starter_files import create_spec
    from gpuyard.report.terminal import print_line

    if sys.stdin.isatty() and not yes:
        for value in VALUES[kind]:
            if value.name not in values:
                values[value.name] = str(typer.prompt(value.question, value.default, err=True))
    path = create_spec(kind, values, file)
    print_line(f"Wrote {path}. Its first line says how to use it.")


def _choose_kind() -> str:
    def parse(text: str) -> str:
        if text not in VALUES:
            raise typer.BadParameter(f"choose from: {', '.join(VALUES)}")
        return text

    question = f"What do you want to describe ({', '.join(VALUES)})?"
    return str(typer.prompt(question, "workload", value_proc=parse, err=True))


def _add(kind: str) -> None:
    """Add the command that writes files of this kind, with one option for each of their values."""

    def command(file: Path | None = None, *, yes: bool = False, **given: str | None) -> None:
        values = {name.replace("_", "-"): text for name, text in given.items() if text is not None}
        _write(kind, file, values, yes=yes)

    file = typer.Argument(metavar="FILE", help="File to write.", show_default=f"NAME.{kind}.yaml")
    yes = typer.Option("--yes", help="Use the default of everything that is left out.")
    parameter = inspect.Parameter
    parameters = [
        parameter("file", parameter.POSITIONAL_OR_KEYWORD, default=None,
                  annotation=Annotated[Path | None, file]),
        *(
            parameter(value.name.replace("-", "_"), parameter.KEYWORD_ONLY, default=None,
                      annotation=Annotated[str | None, _create_option(value)])
            for value in VALUES[kind]
        ),
        parameter("yes", parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, yes]),
    ]  # fmt: skip
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    first = VALUES[kind][1]
    example = f"gpuyard init {kind} --{first.name} {shlex.quote(first.default)}"
    app.command(kind, help=f"Write a {kind} file with comments.\n\nExample: {example}")(command)


def _create_option(value: Value) -> Any:
    return typer.Option(
        f"--{value.name}",
        metavar=value.placeholder,
        help=f"{value.question}.",
        show_default=value.default,
        autocompletion=_COMPLETIONS.get(value.name),
    )


for _kind in VALUES:
    _add(_kind)
