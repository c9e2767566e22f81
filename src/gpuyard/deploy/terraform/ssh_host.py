"""`gpuyard_ssh_host`: an existing machine that is reachable over ssh and identified by its host key."""

import re
import shutil
import subprocess
from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.terraform.resource import (
    ReplacedResource,
    State,
    computed_attribute,
    report_errors,
    required_attribute,
)
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake

_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")
_KEY_LINE = re.compile(r"\S+ ((?:ssh|ecdsa)-[a-z0-9-]+) ([A-Za-z0-9+/]+={0,2})")
_TIMEOUT_SECONDS = 10
_PREFERRED_KEYS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


class SshHost(ReplacedResource):
    """A machine that Terraform neither creates nor removes.

    If it does not answer, the next plan shows it as missing. If its host key has changed, the plan fails.
    """

    @classmethod
    def get_name(cls) -> str:
        return "ssh_host"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                required_attribute("address", types.String(), "Host name or IP address."),
                required_attribute("port", types.Number(), "Port of sshd."),
                computed_attribute(
                    "host_key", types.String(), "Public host key at the first contact."
                ),
            ],
            description="A machine that you already have. Its host key is trusted at the first contact.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        with report_errors(ctx):
            key = scan_host_key(planned["address"], int(planned["port"]))
            if key is None:
                raise GpuyardError(
                    f"no sshd answers at {planned['address']} port {int(planned['port'])}; check that it is running"
                )
            return {**planned, "host_key": key}
        return None

    def read(self, ctx: Any, current: State) -> State | None:
        with report_errors(ctx):
            key = scan_host_key(current["address"], int(current["port"]))
            if key is not None and key != current["host_key"]:
                raise GpuyardError(
                    f"the host key of {current['address']} has changed to {key}: it was reinstalled, or it is another "
                    "machine; remove the resource from the state if you trust it"
                )
            return current if key else None
        return current

    def delete(self, ctx: Any, current: State) -> None:
        """Leave the machine as it is."""


def scan_host_key(address: str, port: int) -> str | None:
    """Return the host key that the machine presents, or None if nothing answers."""
    if not _ADDRESS.fullmatch(address) or not 0 < port < 65536:
        raise UserMistake(f"{address!r} port {port} is not a valid machine address")
    if shutil.which("ssh-keyscan") is None:
        raise MissingRequirement("ssh-keyscan not found; install OpenSSH to read host keys")
    argv = ("ssh-keyscan", "-T", str(_TIMEOUT_SECONDS), "-p", str(port), "--", address)
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    matches = (_KEY_LINE.fullmatch(line) for line in done.stdout.splitlines())
    keys = {match[1]: match[2] for match in matches if match is not None}
    kind = next((kind for kind in _PREFERRED_KEYS if kind in keys), None)
    return f"{kind} {keys[kind]}" if kind else None
