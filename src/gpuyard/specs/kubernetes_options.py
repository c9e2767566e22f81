"""What a job file says to Kubernetes only."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import Line, Name, Spec


class KubernetesOptions(Spec):
    """Where and as what it runs there."""

    image: Annotated[Line | None, Field(description="the container image that has the command")] = (
        None
    )
    namespace: Name | None = None
    queue: Annotated[Name | None, Field(description="Kueue's local queue")] = None
