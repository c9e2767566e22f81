"""`gpuyard_virtual_wall_slice`: machines of imec's Virtual Wall, or of any testbed that jFed asks by GENI's API."""

from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.clouds.jfed import Jfed, Slice
from gpuyard.deploy.terraform.resource import ReplacedResource, State, computed, given, told

_NO_MACHINES: State = {
    "names": [],
    "addresses": [],
    "ports": [],
    "users": [],
    "private_addresses": [],
}


class VirtualWallSlice(ReplacedResource):
    """By its name: one that has machines is taken, so that none is asked for twice."""

    @classmethod
    def get_name(cls) -> str:
        return "virtual_wall_slice"

    @classmethod
    def get_schema(cls) -> Schema:
        words = types.List(types.String())
        return Schema(
            attributes=[
                given("name", types.String(), "Of the slice: 19 letters, digits and '-' at most."),
                given("project", types.String(), "That it is of."),
                given("hours", types.Number(), "After which the testbed ends it."),
                given("request", types.String(), "In GENI's RSpec, version 3."),
                computed("names", words, "Of the machines, as the request has them."),
                computed("addresses", words, "Where ssh reaches them."),
                computed("ports", types.List(types.Number()), "Of their sshds."),
                computed("users", words, "Who logs in."),
                computed("private_addresses", words, "On the slice's own network, or empty."),
            ],
            description="A slice of a testbed. jFed's command line reads the certificate that GPUYARD_JFED_PEM names.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        made: State | None = None
        with told(ctx):
            jfed, wanted = Jfed.of_user(), _slice(planned)
            _names(wanted)  # raises before anything is asked for
            there = jfed.status(wanted) is not None
            made = {**planned, **_NO_MACHINES}
            if there:
                jfed.ready(wanted)
                text = jfed.manifest(wanted)
            else:
                text = jfed.create(wanted, int(planned["hours"]))
            return {**planned, **_machines(wanted, text)}
        return made  # with what went wrong: Terraform keeps it, and the next `up` replaces it

    def read(self, ctx: Any, current: State) -> State | None:
        with told(ctx):
            jfed, wanted = Jfed.of_user(), _slice(current)
            status = jfed.status(wanted)
            if status is None:
                return None
            if status == "READY":
                return {**current, **_machines(wanted, jfed.manifest(wanted))}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with told(ctx):
            Jfed.of_user().end(_slice(current))


def _slice(state: State) -> Slice:
    return Slice(state["name"], state["project"], state["request"])


# imported where they are used: Terraform starts a provider several times a command, and targets bring all that describes them
def _names(wanted: Slice) -> list[str]:
    from gpuyard.deploy.targets.virtual_wall.rspec import names_asked_for

    return names_asked_for(wanted.request)


def _machines(wanted: Slice, manifest: str) -> State:
    from gpuyard.deploy.targets.virtual_wall.rspec import expected, read_manifest

    nodes = expected(read_manifest(manifest), _names(wanted))
    return {
        "names": [node.name for node in nodes],
        "addresses": [node.address for node in nodes],
        "ports": [node.port for node in nodes],
        "users": [node.user for node in nodes],
        "private_addresses": [node.private_address for node in nodes],
    }
