"""`gpuyard_virtual_wall_slice`: machines of imec's Virtual Wall, or of another testbed with a GENI API."""

from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.clouds.jfed import Jfed, Slice
from gpuyard.deploy.clouds.rspec import read_manifest, read_requested_names, select_nodes
from gpuyard.deploy.terraform.resource import (
    ReplacedResource,
    State,
    computed_attribute,
    report_errors,
    required_attribute,
)

_NO_MACHINES: State = {
    "names": [],
    "addresses": [],
    "ports": [],
    "users": [],
    "private_addresses": [],
}


class VirtualWallSlice(ReplacedResource):
    """A slice identified by its name: one that has machines is adopted, so none is requested twice."""

    @classmethod
    def get_name(cls) -> str:
        return "virtual_wall_slice"

    @classmethod
    def get_schema(cls) -> Schema:
        texts = types.List(types.String())
        return Schema(
            attributes=[
                required_attribute(
                    "name",
                    types.String(),
                    "Name of the slice: at most 19 letters, digits, and '-'.",
                ),
                required_attribute("project", types.String(), "Project that the slice belongs to."),
                required_attribute(
                    "lifetime_hours",
                    types.Number(),
                    "Hours after which the testbed deletes the slice.",
                ),
                required_attribute("request", types.String(), "Request RSpec, GENI version 3."),
                computed_attribute("names", texts, "Names of the machines, as in the request."),
                computed_attribute("addresses", texts, "Addresses for ssh."),
                computed_attribute("ports", types.List(types.Number()), "Ports of sshd."),
                computed_attribute("users", texts, "Users for ssh."),
                computed_attribute(
                    "private_addresses", texts, "Addresses on the slice's network, or empty."
                ),
            ],
            description="A slice of a testbed. jFed's command line reads the certificate that GPUYARD_JFED_PEM names.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        state: State | None = None
        with report_errors(ctx):
            jfed, slice_ = Jfed.from_environment(), _parse_slice(planned)
            read_requested_names(slice_.request)  # raises before anything is requested
            exists = jfed.status(slice_) is not None
            state = {**planned, **_NO_MACHINES}
            if exists:
                jfed.wait_until_ready(slice_)
                manifest = jfed.manifest(slice_)
            else:
                manifest = jfed.create(slice_, int(planned["lifetime_hours"]))
            return {**planned, **_parse_machines(slice_, manifest)}
        return state  # after an error, Terraform marks this state as tainted, and the next `up` replaces it

    def read(self, ctx: Any, current: State) -> State | None:
        with report_errors(ctx):
            jfed, slice_ = Jfed.from_environment(), _parse_slice(current)
            status = jfed.status(slice_)
            if status is None:
                return None
            if status == "READY":
                return {**current, **_parse_machines(slice_, jfed.manifest(slice_))}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with report_errors(ctx):
            Jfed.from_environment().delete(_parse_slice(current))


def _parse_slice(state: State) -> Slice:
    return Slice(state["name"], state["project"], state["request"])


def _parse_machines(slice_: Slice, manifest: str) -> State:
    nodes = select_nodes(read_manifest(manifest), read_requested_names(slice_.request))
    return {
        "names": [node.name for node in nodes],
        "addresses": [node.address for node in nodes],
        "ports": [node.port for node in nodes],
        "users": [node.user for node in nodes],
        "private_addresses": [node.private_address for node in nodes],
    }
