"""The ssh command that reaches machines behind a testbed's gateway, which accepts the key in the user's certificate."""

import os
import shlex
from pathlib import Path


def ssh_proxy_command(
    pem_variable: str, gateway: tuple[str, int, str], address: str, port: int
) -> str:
    """Return a command for ssh's ProxyCommand.

    `pem_variable` is the environment variable that names the PEM file. The gateway is a host, a port, and a user.
    """
    host, gateway_port, user = gateway
    key = Path(os.environ[pem_variable]).absolute()
    forward = ("-W", f"{address}:{port}")
    return shlex.join(("ssh", "-i", str(key), "-p", str(gateway_port), *forward, f"{user}@{host}"))
