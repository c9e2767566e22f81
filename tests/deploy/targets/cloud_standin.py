"""A Terraform provider with the schema of an official one (`provider_schemas/`), and a directory for a cloud.

`python -m tests.deploy.targets.cloud_standin aws`. Terraform then checks a module for real, names, types and references, and
makes, misses and removes what it names: each thing is a file in GPUYARD_STANDIN. `refuse` there holds the names of things
that are refused; `slow` makes each instance take as many seconds as it says.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tf import iface, types
from tf.blocks import SetNestedBlock
from tf.gen import tfplugin_pb2 as pb
from tf.runner import run_provider
from tf.schema import Attribute, Block, Schema

SCHEMAS = Path(__file__).parent / "provider_schemas"
_TYPES = {
    "string": types.String(),
    "number": types.Number(),
    "bool": types.Bool(),
    "list": types.List(types.String()),
    "set": types.Set(types.String()),
    "map": types.Map(types.String()),
}
_OUTSIDE = frozenset({"public_ip", "nat_ip", "address"})
_INSIDE = frozenset({"private_ip", "network_ip", "access_ip_v4"})
State = dict[str, Any]


def cloud() -> Path:
    return Path(os.environ["GPUYARD_STANDIN"])


class ListNestedBlock(SetNestedBlock):  # type: ignore[misc]
    """In the order in which they are written; the package has sets alone."""

    def to_pb(self) -> Any:
        made = super().to_pb()
        made.nesting = pb.Schema.NestedBlock.NestingMode.LIST
        return made

    def encode(self, value: Any) -> Any:
        """With what is known only when it is made: the package plans that outside of blocks alone."""
        computed = [one.name for one in self.block.attributes if one.computed]
        late = dict.fromkeys(computed, types.Unknown)
        return super().encode(
            [{**one, **{k: v for k, v in late.items() if one.get(k) is None}} for one in value]
        )

    def semantically_equal(self, a_decoded: Any, b_decoded: Any) -> bool:
        return False  # so that it is always encoded


def attributes(described: State) -> list[Attribute]:
    names = {**described.get("computed", {}), **described["arguments"]}
    return [
        Attribute(
            name,
            _TYPES[kind],
            required=name in described.get("required", ()),
            optional=name in described["arguments"] and name not in described.get("required", ()),
            computed=name in described.get("computed", {}),
        )
        for name, kind in names.items()
    ]


def blocks(described: State) -> list[ListNestedBlock]:
    return [
        ListNestedBlock(name, Block(attributes(inner), blocks(inner)))
        for name, inner in described.get("blocks", {}).items()
    ]


def filled(described: State, state: State, number: int, identity: str) -> State:
    """What the cloud adds."""
    made = dict(state)
    for name, kind in described.get("computed", {}).items():
        if made.get(name) not in (None, types.Unknown):
            continue
        inside = f"10.83.0.{number}"
        if name in _OUTSIDE:
            made[name] = f"198.51.100.{number}"
        elif name in _INSIDE:
            made[name] = inside
        elif kind == "list":
            made[name] = [inside]
        else:
            made[name] = 1 if kind == "number" else identity
    for name, inner in described.get("blocks", {}).items():
        made[name] = [filled(inner, one, number, identity) for one in made.get(name) or []]
    return made


def named(kind: str, described: State, prefix: str) -> Any:
    """What a resource and a data source have in common."""

    class Named:
        def __init__(self, provider: Any) -> None:
            del provider

        @classmethod
        def get_name(cls) -> str:
            return kind.removeprefix(prefix)

        @classmethod
        def get_schema(cls) -> Schema:
            return Schema(attributes=attributes(described), block_types=blocks(described))

    return Named


def resource(kind: str, described: State, prefix: str) -> type[iface.Resource]:
    class Thing(named(kind, described, prefix), iface.Resource):  # type: ignore[misc]
        def create(self, ctx: Any, planned: State) -> State | None:
            if kind in _lines("refuse"):
                ctx.diagnostics.add_error("InsufficientInstanceCapacity: none left")
                return None
            number = int(time.monotonic_ns() % 200) + 1
            for seconds in _lines("slow") if "instance" in kind else ():
                (cloud() / "creating").touch()
                time.sleep(float(seconds))
            identity = f"{kind}-{number}-{os.urandom(3).hex()}"
            made = filled(described, planned, number, identity)
            (cloud() / f"{made['id']}.thing").write_text(json.dumps(made, default=str))
            return made

        def read(self, ctx: Any, current: State) -> State | None:
            return current if (cloud() / f"{current['id']}.thing").exists() else None

        def update(self, ctx: Any, current: State, planned: State) -> State:
            return planned

        def delete(self, ctx: Any, current: State) -> None:
            if f"delete {kind}" in _lines("refuse"):
                ctx.diagnostics.add_error("DependencyViolation: it is in use")
                return
            for seconds in _lines("slow") if "instance" in kind else ():
                (cloud() / "deleting").touch()
                time.sleep(float(seconds))
            (cloud() / f"{current['id']}.thing").unlink(missing_ok=True)

        def upgrade(self, ctx: Any, version: int, old: State) -> State:
            return old

    return Thing


def data_source(kind: str, described: State, prefix: str) -> type[iface.DataSource]:
    class Known(named(kind, described, prefix), iface.DataSource):  # type: ignore[misc]
        def read(self, ctx: Any, config: State) -> State:
            return filled(described, config, 1, f"{kind}-known")

    return Known


def _lines(name: str) -> list[str]:
    try:
        return (cloud() / name).read_text().splitlines()
    except FileNotFoundError:
        return []


class StandIn(iface.Provider):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        self.described = json.loads((SCHEMAS / f"{name}.json").read_text())
        self.prefix = f"{self.described['provider'].rpartition('/')[2]}_"

    def get_model_prefix(self) -> str:
        return self.prefix

    def get_provider_schema(self, diags: Any) -> Schema:
        return Schema(
            attributes=[
                Attribute(name, types.String(), optional=True)
                for name in self.described["configuration"]
            ]
        )

    def full_name(self) -> str:
        return f"registry.terraform.io/{self.described['provider']}"

    def validate_config(self, diags: Any, config: State) -> None:
        pass

    def configure_provider(self, diags: Any, config: State) -> None:
        (cloud() / "secret-seen").write_text(os.environ.get("AWS_SECRET_ACCESS_KEY", ""))

    def get_data_sources(self) -> list[type[iface.DataSource]]:
        return [data_source(kind, one, self.prefix) for kind, one in self.described["data"].items()]

    def get_resources(self) -> list[type[iface.Resource]]:
        return [
            resource(kind, one, self.prefix) for kind, one in self.described["resources"].items()
        ]


if __name__ == "__main__":
    run_provider(StandIn(sys.argv.pop(1)))
