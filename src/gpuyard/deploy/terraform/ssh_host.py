"""`gpuyard_ssh_host`: a machine that is there already, reachable and known by its key."""

import re
import shutil
import subprocess
from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.terraform.resource import ReplacedResource, State, computed, given, told
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake

_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")
_LINE = re.compile(r"\S+ ((?:ssh|ecdsa)-[a-z0-9-]+) ([A-Za-z0-9+/]+={0,2})")
_SECONDS = 10
_BEST = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


class SshHost(ReplacedResource):
    """Nothing is made and nothing removed. One that is silent is missing at the next plan, one with another key differs."""

    @classmethod
    def get_name(cls) -> str:
        return "ssh_host"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                given("address", types.String(), "A host name or an IP address."),
                given("port", types.Number(), "Of its sshd."),
                computed("host_key", types.String(), "By which ssh knows it, when first seen."),
            ],
            description="A machine that you have. Its key is believed when it is first seen.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with told(ctx):
            key = host_key(planned["address"], int(planned["port"]))
            if key is None:
                where = f"{planned['address']} port {int(planned['port'])}"
                raise GpuyardError(f"no sshd answers at {where}")
            return {**planned, "host_key": key}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with told(ctx):
            key = host_key(current["address"], int(current["port"]))
            if key is not None and key != current["host_key"]:
                raise GpuyardError(
                    f"{current['address']} has another host key than it had: {key}; somebody has installed it anew, "
                    "or it is not the same machine"
                )
            return current if key else None
        return current

    def delete(self, ctx: Any, current: State) -> None:
        """It stays as it is."""


def host_key(address: str, port: int) -> str | None:
    """As it says it is; None where nothing answers."""
    if not _ADDRESS.fullmatch(address) or not 0 < port < 65536:
        raise UserMistake(f"{address!r} port {port} is no address of a machine")
    if shutil.which("ssh-keyscan") is None:
        raise MissingRequirement("host keys are read with ssh-keyscan, which is not installed")
    argv = ("ssh-keyscan", "-T", str(_SECONDS), "-p", str(port), "--", address)
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    lines = (_LINE.fullmatch(line) for line in done.stdout.splitlines())
    found = {match[1]: match[2] for match in lines if match is not None}
    kind = next((kind for kind in _BEST if kind in found), None)
    return f"{kind} {found[kind]}" if kind else None
