"""`terraform-provider-gpuyard`: Terraform starts it and speaks gRPC with it (the `tf` package does that).

Resources: `gpuyard_lab` (the network of a lab: nodes and shaped links) and `gpuyard_lab_machine` (a host in it). What
was removed by hand is gone at the next `read`, so that a plan shows it.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tf import iface, types
from tf.runner import run_provider
from tf.schema import Attribute, Schema
from tf.utils import Diagnostics

from gpuyard import units
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.lab.operation import call

ADDRESS = "terraform.local/gpuyard/gpuyard"
State = dict[str, Any]


def _given(name: str, kind: Any, description: str, *, replace: bool = True) -> Attribute:
    return Attribute(
        name, kind, description=description, required=True, requires_replace=replace or None
    )


def _found(name: str, kind: Any, description: str) -> Attribute:
    return Attribute(name, kind, description=description, computed=True)


@contextmanager
def _told(context: Any) -> Iterator[None]:
    """What can't be done is what Terraform says, in our sentence."""
    try:
        yield
    except GpuyardError as error:
        context.diagnostics.add_error(f"gpuyard: {error}")


class _Resource(iface.Resource):  # type: ignore[misc]  # the package has no types
    """What ours have in common: a change is a removal and a new one."""

    def __init__(self, provider: iface.Provider) -> None:
        del provider

    def update(self, ctx: Any, current: State, planned: State) -> State:
        del ctx, current
        return planned

    def upgrade(self, ctx: Any, version: int, old: State) -> State:
        """There is one version of each schema."""
        del ctx, version
        return old


class LabResource(_Resource):
    """Nodes with a network of their own on this host, and links between them."""

    @classmethod
    def get_name(cls) -> str:
        return "lab"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                _given("name", types.String(), "Of the lab; none other on this host has it."),
                _given("nodes", types.Number(), "How many."),
                _given("link", types.String(), "Rate of each node's link, like `1 Gbit/s`."),
                _found("addresses", types.List(types.String()), "Of the nodes, in order."),
            ],
            description="The network of an emulated cluster on this host.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with _told(ctx):
            made = call(
                "up", name=planned["name"], nodes=int(planned["nodes"]), link=planned["link"]
            )
            return {**planned, "addresses": made["addresses"]}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with _told(ctx):
            found = call("find", name=current["name"])
            if found is None:
                return None
            rate = found["rate_bytes_per_second"]
            same = rate == units.parse_rate(current["link"])
            link = current["link"] if same else units.format_bit_rate(rate)
            addresses = found["addresses"]
            return {**current, "nodes": len(addresses), "link": link, "addresses": addresses}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with _told(ctx):
            call("down", name=current["name"])


class LabMachine(_Resource):
    """A node of a lab with a root file system and an sshd."""

    @classmethod
    def get_name(cls) -> str:
        return "lab_machine"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                _given("lab", types.String(), "Name of the lab."),
                _given("node", types.Number(), "Its number there, from 0."),
                _given("directory", types.String(), "Of its disk; made and removed with it."),
                _given("authorized_key", types.String(), "Public key that may log in as root."),
                _given("gpus", types.Number(), "Stand-ins for GPUs: device nodes."),
                _given(
                    "packages",
                    types.List(types.String()),
                    "Debian packages that it has beside the usual ones.",
                ),
                _given(
                    "mounts",
                    types.List(types.String()),
                    "Directories of this host, read-only there.",
                ),
                _found("name", types.String(), "Its host name."),
                _found("address", types.String(), "In the lab's network."),
                _found("host_key", types.String(), "By which ssh knows it."),
                _found("proxy_command", types.String(), "By which ssh reaches it from this host."),
            ],
            description="A machine of a lab: an overlay over one Debian root, in a node's network.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with _told(ctx):
            made = call(
                "start",
                name=planned["lab"],
                node=int(planned["node"]),
                directory=planned["directory"],
                authorized_key=planned["authorized_key"],
                gpus=int(planned["gpus"]),
                packages=planned["packages"],
                mounts=planned["mounts"],
            )
            paths = [f"{name}={value}" for name, value in import_path().items()]
            dial = ["env", *paths, *module_argv("gpuyard.lab.dial"), made["namespace"], "%h", "%p"]
            found = {key: made[key] for key in ("name", "address", "host_key")}
            return {**planned, **found, "proxy_command": shlex.join(dial)}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with _told(ctx):
            up = call("is_up", directory=current["directory"])
            return current if up and call("find", name=current["lab"]) else None
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with _told(ctx):
            call("remove", name=current["name"], directory=current["directory"])


class GpuyardProvider(iface.Provider):  # type: ignore[misc]
    """It needs no configuration: what a resource is made with, it says itself."""

    def get_model_prefix(self) -> str:
        return "gpuyard_"

    def get_provider_schema(self, diags: Diagnostics) -> Schema:
        del diags
        return Schema(attributes=[])

    def full_name(self) -> str:
        return ADDRESS

    def validate_config(self, diags: Diagnostics, config: State) -> None:
        pass

    def configure_provider(self, diags: Diagnostics, config: State) -> None:
        pass

    def get_data_sources(self) -> list[type[iface.DataSource]]:
        return []

    def get_resources(self) -> list[type[iface.Resource]]:
        return [LabResource, LabMachine]


def main() -> None:
    run_provider(GpuyardProvider())


if __name__ == "__main__":
    main()
