"""`gpuyard schema`: print the JSON Schema of a spec."""

import sys
from typing import Annotated

import typer


def schema(
    name: Annotated[
        str,
        typer.Argument(
            help="Spec: workload, cluster, study, offers, plan, site, sweep, job, or deployment.",
            metavar="NAME",
        ),
    ],
) -> None:
    """Print the JSON Schema of a spec, for editors and programs.

    Example: gpuyard schema cluster > cluster.schema.json
    """
    from gpuyard.specs.schema import json_schema

    sys.stdout.write(json_schema(name))
