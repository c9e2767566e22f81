"""`gpuyard schema`: print the JSON Schema of a spec."""

import sys
from typing import Annotated

import typer

from gpuyard.choices import SpecName


def schema(
    spec: Annotated[
        SpecName,
        typer.Argument(help="Kind of file.", metavar="NAME"),
    ],
) -> None:
    """Print the JSON Schema of a spec, for editors and programs.

    Example: gpuyard schema cluster > cluster.schema.json
    """
    from gpuyard.specs.schema import json_schema

    sys.stdout.write(json_schema(spec))
