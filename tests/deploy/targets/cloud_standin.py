"""A Terraform provider with the schema of an official one (`provider_schemas/`), and a directory in place of a cloud.

Run it as `python -m tests.deploy.targets.cloud_standin aws`. Terraform then really checks a module's names, types, and
references, and creates, detects, and removes resources: each is a file in GPUYARD_STANDIN. The file `refuse` lists resources
that are rejected, each with the error after it; `KIND.json` has attributes of a data source; `slow` sets the seconds that each instance takes.
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
    """Blocks in document order; the package supports only sets."""

    def to_pb(self) -> Any:
        created = super().to_pb()
        created.nesting = pb.Schema.NestedBlock.NestingMode.LIST
        return created

    def encode(self, value: Any) -> Any:
        """Mark computed attributes as unknown, which the package does only outside of blocks."""
        computed = [entry.name for entry in self.block.attributes if entry.computed]
        unknown = dict.fromkeys(computed, types.Unknown)
        return super().encode(
            [
                {**entry, **{k: v for k, v in unknown.items() if entry.get(k) is None}}
                for entry in value
            ]
        )

    def semantically_equal(self, a_decoded: Any, b_decoded: Any) -> bool:
        return False  # so that it is always encoded


def attributes(schema: State) -> list[Attribute]:
    names = {**schema.get("computed", {}), **schema["arguments"]}
    return [
        Attribute(
            name,
            _TYPES[kind],
            required=name in schema.get("required", ()),
            optional=name in schema["arguments"] and name not in schema.get("required", ()),
            computed=name in schema.get("computed", {}),
        )
        for name, kind in names.items()
    ]


def blocks(schema: State) -> list[ListNestedBlock]:
    return [
        ListNestedBlock(name, Block(attributes(inner), blocks(inner)))
        for name, inner in schema.get("blocks", {}).items()
    ]


def fill_computed(schema: State, state: State, number: int, identity: str) -> State:
    """Add the attributes that the cloud computes."""
    created = dict(state)
    for name, kind in schema.get("computed", {}).items():
        if created.get(name) not in (None, types.Unknown):
            continue
        inside = f"10.83.0.{number}"
        if name in _OUTSIDE:
            created[name] = f"198.51.100.{number}"
        elif name in _INSIDE:
            created[name] = inside
        elif kind == "list":
            created[name] = [inside]
        else:
            created[name] = 1 if kind == "number" else identity
    for name, inner in schema.get("blocks", {}).items():
        created[name] = [
            fill_computed(inner, entry, number, identity) for entry in created.get(name) or []
        ]
    return created


def create_base(kind: str, schema: State, prefix: str) -> Any:
    """Create the common base class of a resource and a data source."""

    class Named:
        def __init__(self, provider: Any) -> None:
            del provider

        @classmethod
        def get_name(cls) -> str:
            return kind.removeprefix(prefix)

        @classmethod
        def get_schema(cls) -> Schema:
            return Schema(attributes=attributes(schema), block_types=blocks(schema))

    return Named


def resource(kind: str, schema: State, prefix: str) -> type[iface.Resource]:
    class Thing(create_base(kind, schema, prefix), iface.Resource):  # type: ignore[misc]
        def create(self, ctx: Any, planned: State) -> State | None:
            for line in _lines("refuse"):
                refused, _, error = line.partition(" ")
                if refused == kind:
                    ctx.diagnostics.add_error(error or "InsufficientInstanceCapacity: none left")
                    return None
            number = int(time.monotonic_ns() % 200) + 1
            for seconds in _lines("slow") if "instance" in kind else ():
                (cloud() / "creating").touch()
                time.sleep(float(seconds))
            identity = f"{kind}-{number}-{os.urandom(3).hex()}"
            created = fill_computed(schema, planned, number, identity)
            (cloud() / f"{created['id']}.thing").write_text(json.dumps(created, default=str))
            return created

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


def data_source(kind: str, schema: State, prefix: str) -> type[iface.DataSource]:
    class Known(create_base(kind, schema, prefix), iface.DataSource):  # type: ignore[misc]
        def read(self, ctx: Any, config: State) -> State:
            known = cloud() / f"{kind}.json"
            written = json.loads(known.read_text()) if known.exists() else {}
            return fill_computed(schema, {**config, **written}, 1, f"{kind}-known")

    return Known


def _lines(name: str) -> list[str]:
    try:
        return (cloud() / name).read_text().splitlines()
    except FileNotFoundError:
        return []


class StandIn(iface.Provider):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        self.schema = json.loads((SCHEMAS / f"{name}.json").read_text())
        self.prefix = f"{self.schema['provider'].rpartition('/')[2]}_"

    def get_model_prefix(self) -> str:
        return self.prefix

    def get_provider_schema(self, diags: Any) -> Schema:
        return Schema(
            attributes=[
                Attribute(name, types.String(), optional=True)
                for name in self.schema["configuration"]
            ]
        )

    def full_name(self) -> str:
        return f"registry.terraform.io/{self.schema['provider']}"

    def validate_config(self, diags: Any, config: State) -> None:
        pass

    def configure_provider(self, diags: Any, config: State) -> None:
        (cloud() / "secret-seen").write_text(os.environ.get("AWS_SECRET_ACCESS_KEY", ""))

    def get_data_sources(self) -> list[type[iface.DataSource]]:
        return [
            data_source(kind, entry, self.prefix) for kind, entry in self.schema["data"].items()
        ]

    def get_resources(self) -> list[type[iface.Resource]]:
        return [
            resource(kind, entry, self.prefix) for kind, entry in self.schema["resources"].items()
        ]


if __name__ == "__main__":
    run_provider(StandIn(sys.argv.pop(1)))
