"""`gpuyard lease`: hold GPUs for a command, a shell, or the calling shell."""

import inspect
import sys
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer

from gpuyard.cli.share.lease_command import LeaseOptions, run_lease


def lease(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[N] -- COMMAND", help="Number of GPUs, and the command after --."),
    ] = None,
    **options: Any,
) -> None:
    """Wait for free GPUs, run a command on them, and give them back when it ends.

    The command sees CUDA_VISIBLE_DEVICES and GPUYARD_LEASE, and its exit status is this command's. Exits 75 if --now or
    --wait found no GPUs.

    Example: gpuyard lease 2 -- python train.py
    """
    sys.exit(run_lease(what or [], LeaseOptions(**options)))


def _declare_options() -> None:
    """Give the command one option for each field of `LeaseOptions`, which is the only place that lists them."""
    hints = get_type_hints(LeaseOptions)
    signature = inspect.signature(lease)
    parameters = [signature.parameters["what"]]
    for option in fields(LeaseOptions):
        declaration = typer.Option(
            option.metadata["flag"],
            metavar=option.metadata["metavar"],
            help=option.metadata["help"],
        )
        parameters.append(
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=Annotated[hints[option.name], declaration],
            )
        )
    lease.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    lease.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


_declare_options()
