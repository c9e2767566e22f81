"""`gpuyard facility FILE`: the whole design of a cluster's room."""

from typing import Annotated

import typer


def design(
    cluster: Annotated[str, typer.Argument(help="A *.cluster.yaml, or a catalog machine.")],
) -> None:
    """Design the room of a cluster.

    Example: gpuyard facility apollo.cluster.yaml
    """
    from gpuyard.catalog.specfiles import read_cluster
    from gpuyard.cli.options import console

    console().print(read_cluster(cluster).name)
