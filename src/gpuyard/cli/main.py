"""The root command, and the one place where an error becomes an exit status."""

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from gpuyard import __version__
from gpuyard.errors import GpuyardError

app = typer.Typer(
    name="gpuyard",
    help="Should we add GPUs, which, where, and what will it cost? gpuyard answers with evidence.",
    epilog="Start with: gpuyard doctor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STOPPED = 130
_GROUPS = (
    "bench",
    "catalog",
    "cost",
    "data",
    "facility",
    "horovod",
    "lab",
    "prices",
    "results",
    "topo",
)
_VERBS = (
    "calibrate",
    "doctor",
    "plan",
    "playbook",
    "predict",
    "schema",
    "study",
    "train",
    "validate",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gpuyard {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error.", envvar="GPUYARD_DEBUG"),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    del version
    if debug:
        os.environ["GPUYARD_DEBUG"] = "1"


for _name in _GROUPS:
    app.add_typer(import_module(f"gpuyard.cli.{_name}").app, name=_name)
for _name in _VERBS:
    app.command(_name)(getattr(import_module(f"gpuyard.cli.{_name}"), _name))


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        app()
    except GpuyardError as error:
        if os.environ.get("GPUYARD_DEBUG") == "1":
            raise
        sys.stderr.write(f"gpuyard: {error}\n")
        sys.exit(error.exit_status)
    except SystemExit as leaving:
        if leaving.code == _STOPPED:  # typer's own answer to Ctrl-C is silence
            sys.stderr.write("gpuyard: stopped; what was finished is kept\n")
        raise
    except BrokenPipeError:
        # the reader (head, less) has gone; Python would complain again while flushing at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
