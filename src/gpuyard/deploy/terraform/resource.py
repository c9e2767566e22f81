"""What resources of our Terraform provider have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tf import iface
from tf.schema import Attribute

from gpuyard.errors import GpuyardError

State = dict[str, Any]


def given(name: str, kind: Any, description: str, *, replace: bool = True) -> Attribute:
    return Attribute(
        name, kind, description=description, required=True, requires_replace=replace or None
    )


def optional(name: str, kind: Any, description: str) -> Attribute:
    return Attribute(name, kind, description=description, optional=True, requires_replace=True)


def computed(name: str, kind: Any, description: str) -> Attribute:
    return Attribute(name, kind, description=description, computed=True)


@contextmanager
def told(context: Any) -> Iterator[None]:
    """What can't be done is what Terraform says, in our sentence."""
    try:
        yield
    except GpuyardError as error:
        context.diagnostics.add_error(f"gpuyard: {error}")


class ReplacedResource(iface.Resource):  # type: ignore[misc]  # the package has no types
    """A change is a removal and a new one."""

    def __init__(self, provider: iface.Provider) -> None:
        del provider

    def update(self, ctx: Any, current: State, planned: State) -> State:
        del ctx, current
        return planned

    def upgrade(self, ctx: Any, version: int, old: State) -> State:
        """There is one version of each schema."""
        del ctx, version
        return old
