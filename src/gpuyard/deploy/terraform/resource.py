"""Helpers that all resources of gpuyard's Terraform provider share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tf import iface
from tf.schema import Attribute

from gpuyard.errors import GpuyardError

State = dict[str, Any]


def required_attribute(name: str, kind: Any, description: str) -> Attribute:
    return Attribute(name, kind, description=description, required=True, requires_replace=True)


def changeable_attribute(name: str, kind: Any, description: str) -> Attribute:
    """Return a required attribute that `update` can change in place."""
    return Attribute(name, kind, description=description, required=True)


def optional_attribute(name: str, kind: Any, description: str) -> Attribute:
    return Attribute(name, kind, description=description, optional=True, requires_replace=True)


def computed_attribute(name: str, kind: Any, description: str) -> Attribute:
    return Attribute(name, kind, description=description, computed=True)


@contextmanager
def report_errors(context: Any) -> Iterator[None]:
    """Let Terraform show a GpuyardError as its own diagnostic."""
    try:
        yield
    except GpuyardError as error:
        context.diagnostics.add_error(f"gpuyard: {error}")


class ReplacedResource(iface.Resource):  # type: ignore[misc]  # the package has no types
    """A resource that Terraform replaces on every change, so it is never updated in place."""

    def __init__(self, provider: iface.Provider) -> None:
        del provider

    def update(self, ctx: Any, current: State, planned: State) -> State:
        del ctx, current
        return planned

    def upgrade(self, ctx: Any, version: int, old: State) -> State:
        """Return the state unchanged, because each schema has a single version."""
        del ctx, version
        return old
