"""What a job file says to Slurm only."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import Name, Spec


class SlurmOptions(Spec):
    """Passed on to sbatch by the option of the same name."""

    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    array: Annotated[Name | None, Field(description="like 0-9%2: at most 2 of 10 at once")] = None
    constraint: Name | None = None
