"""`terraform-provider-gpuyard`: Terraform starts it and speaks gRPC with it (the `tf` package does that).

Resources: `gpuyard_lab` (the network of a lab: nodes and shaped links), `gpuyard_lab_machine` (a host in it) and
`gpuyard_lambda_instance`, `gpuyard_gpulab_job`, `gpuyard_virtual_wall_slice` and `gpuyard_ssh_host` (in files of their
own). What was removed by hand is gone at the next `read`, so that a plan shows it.
"""

import os
import shlex
import threading
import time
from typing import Any

from tf import iface, types
from tf.runner import run_provider
from tf.schema import Schema
from tf.utils import Diagnostics

from gpuyard import units
from gpuyard.deploy.terraform.gpulab_job import GpulabJob
from gpuyard.deploy.terraform.lambda_instance import LambdaInstance
from gpuyard.deploy.terraform.resource import (
    ReplacedResource,
    State,
    computed,
    given,
    optional,
    told,
)
from gpuyard.deploy.terraform.ssh_host import SshHost
from gpuyard.deploy.terraform.virtual_wall_slice import VirtualWallSlice
from gpuyard.interpreter import import_path, module_argv
from gpuyard.lab.operation import call

ADDRESS = "terraform.local/gpuyard/gpuyard"
_LOOK_SECONDS = 1.0


class LabResource(ReplacedResource):
    """Nodes with a network of their own on this host, and links between them."""

    @classmethod
    def get_name(cls) -> str:
        return "lab"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                given("name", types.String(), "Of the lab; none other on this host has it."),
                given("nodes", types.Number(), "How many."),
                given("link", types.String(), "Rate of each node's link, like `1 Gbit/s`."),
                computed("addresses", types.List(types.String()), "Of the nodes, in order."),
            ],
            description="The network of an emulated cluster on this host.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with told(ctx):
            made = call(
                "up", name=planned["name"], nodes=int(planned["nodes"]), link=planned["link"]
            )
            return {**planned, "addresses": made["addresses"]}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with told(ctx):
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
        with told(ctx):
            call("down", name=current["name"])


class LabMachineResource(ReplacedResource):
    """A node of a lab with a root file system and an sshd."""

    @classmethod
    def get_name(cls) -> str:
        return "lab_machine"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                given("lab", types.String(), "Name of the lab."),
                given("node", types.Number(), "Its number there, from 0."),
                given("directory", types.String(), "Of its disk; made and removed with it."),
                given("authorized_key", types.String(), "Public key that may log in as root."),
                given("gpus", types.Number(), "Stand-ins for GPUs: device nodes."),
                given(
                    "packages",
                    types.List(types.String()),
                    "Debian packages that it has beside the usual ones.",
                ),
                optional(
                    "release",
                    types.String(),
                    "Release of Debian or Ubuntu, like trixie; without it this host's own.",
                ),
                given(
                    "mounts",
                    types.List(types.String()),
                    "Directories of this host, read-only there.",
                ),
                computed("name", types.String(), "Its host name."),
                computed("address", types.String(), "In the lab's network."),
                computed("host_key", types.String(), "By which ssh knows it."),
                computed(
                    "proxy_command", types.String(), "By which ssh reaches it from this host."
                ),
            ],
            description="A machine of a lab: an overlay over one Debian root, in a node's network.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with told(ctx):
            made = call(
                "start",
                name=planned["lab"],
                node=int(planned["node"]),
                directory=planned["directory"],
                authorized_key=planned["authorized_key"],
                gpus=int(planned["gpus"]),
                packages=planned["packages"],
                release=planned["release"],
                mounts=planned["mounts"],
            )
            paths = [f"{name}={value}" for name, value in import_path().items()]
            # not %h and %p: nothing in a command is ssh's to replace
            where = (made["namespace"], made["address"], "22")
            dial = ["env", *paths, *module_argv("gpuyard.lab.dial"), *where]
            found = {key: made[key] for key in ("name", "address", "host_key")}
            return {**planned, **found, "proxy_command": shlex.join(dial)}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with told(ctx):
            up = call("is_up", directory=current["directory"])
            return current if up and call("find", name=current["lab"]) else None
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with told(ctx):
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
        return [
            LabResource,
            LabMachineResource,
            LambdaInstance,
            GpulabJob,
            VirtualWallSlice,
            SshHost,
        ]


def main() -> None:
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    run_provider(GpuyardProvider())


def _leave_with(terraform: int) -> None:
    """A Terraform that was killed ends nobody, and its providers would wait for it for ever."""
    while os.getppid() == terraform:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
