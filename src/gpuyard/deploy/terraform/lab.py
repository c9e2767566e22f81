"""`gpuyard_lab`, the network of an emulated cluster on this host, and `gpuyard_lab_machine`, a host in it."""

import shlex
from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.terraform.resource import (
    ReplacedResource,
    State,
    changeable_attribute,
    computed_attribute,
    optional_attribute,
    report_errors,
    required_attribute,
)
from gpuyard.interpreter import import_path, module_argv
from gpuyard.lab.operation import call


class LabResource(ReplacedResource):
    """Nodes with their own network on this host, and shaped links between them.

    Its size and rate change in place, because replacing it would stop everything on nodes that stay.
    """

    @classmethod
    def get_name(cls) -> str:
        return "lab"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                required_attribute("name", types.String(), "Name of the lab, unique on this host."),
                changeable_attribute("nodes", types.Number(), "Number of nodes."),
                changeable_attribute(
                    "rate_bytes_per_second",
                    types.Number(),
                    "Rate of each node's link in each direction, in bytes per second.",
                ),
                computed_attribute(
                    "addresses", types.List(types.String()), "Addresses of the nodes, in order."
                ),
            ],
            description="The network of an emulated cluster on this host.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with report_errors(ctx):
            lab = call(
                "up",
                name=planned["name"],
                nodes=int(planned["nodes"]),
                rate_bytes_per_second=planned["rate_bytes_per_second"],
            )
            return {**planned, "addresses": lab["addresses"]}
        return None

    def plan(self, ctx: Any, current: State, planned: State) -> State:
        del current
        if "nodes" in ctx.changed_fields:
            planned["addresses"] = types.Unknown
        return planned

    def update(self, ctx: Any, current: State, planned: State) -> State:
        with report_errors(ctx):
            lab = call(
                "resize",
                name=planned["name"],
                nodes=int(planned["nodes"]),
                rate_bytes_per_second=planned["rate_bytes_per_second"],
            )
            return {**planned, "addresses": lab["addresses"]}
        return current

    def read(self, ctx: Any, current: State) -> State | None:
        with report_errors(ctx):
            lab = call("find", name=current["name"])
            if lab is None:
                return None
            return {
                **current,
                "nodes": len(lab["addresses"]),
                "rate_bytes_per_second": lab["rate_bytes_per_second"],
                "addresses": lab["addresses"],
            }
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with report_errors(ctx):
            call("down", name=current["name"])


class LabMachineResource(ReplacedResource):
    """A node of a lab with a root file system and an sshd."""

    @classmethod
    def get_name(cls) -> str:
        return "lab_machine"

    @classmethod
    def get_schema(cls) -> Schema:
        texts = types.List(types.String())
        return Schema(
            attributes=[
                required_attribute("lab", types.String(), "Name of the lab."),
                required_attribute("node", types.Number(), "Number of the node, from 0."),
                required_attribute(
                    "directory",
                    types.String(),
                    "Directory for the machine's disk, created and removed with it.",
                ),
                required_attribute(
                    "authorized_key", types.String(), "Public key that may log in as root."
                ),
                required_attribute(
                    "gpus", types.Number(), "Number of device nodes that stand in for GPUs."
                ),
                required_attribute("packages", texts, "Additional Debian packages to install."),
                optional_attribute(
                    "release",
                    types.String(),
                    "Debian or Ubuntu release, like trixie; this host's release by default.",
                ),
                required_attribute(
                    "mounts", texts, "Directories of this host that the machine sees read-only."
                ),
                required_attribute(
                    "shared",
                    types.String(),
                    "Directory of this host, created if necessary, that the machine sees as /srv/shared.",
                ),
                computed_attribute("name", types.String(), "Host name."),
                computed_attribute("address", types.String(), "Address in the lab's network."),
                computed_attribute("host_key", types.String(), "Public host key."),
                computed_attribute(
                    "proxy_command",
                    types.String(),
                    "ProxyCommand with which ssh reaches the machine from this host.",
                ),
            ],
            description="A machine of a lab: an overlay over a shared Debian root, in a node's network.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with report_errors(ctx):
            machine = call(
                "start",
                name=planned["lab"],
                node=int(planned["node"]),
                directory=planned["directory"],
                authorized_key=planned["authorized_key"],
                gpus=int(planned["gpus"]),
                packages=planned["packages"],
                release=planned["release"],
                mounts=planned["mounts"],
                shared=planned["shared"],
            )
            paths = [f"{name}={value}" for name, value in import_path().items()]
            # The address is spelled out instead of %h and %p, so ssh has nothing to expand.
            endpoint = (machine["namespace"], machine["address"], "22")
            command = ["env", *paths, *module_argv("gpuyard.lab.ssh_proxy"), *endpoint]
            computed = {key: machine[key] for key in ("name", "address", "host_key")}
            return {**planned, **computed, "proxy_command": shlex.join(command)}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with report_errors(ctx):
            up = call(
                "is_up",
                name=current["lab"],
                node=int(current["node"]),
                directory=current["directory"],
            )
            return current if up else None
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with report_errors(ctx):
            call("remove", name=current["name"], directory=current["directory"])
