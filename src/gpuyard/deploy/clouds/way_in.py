"""How ssh comes to machines behind a testbed's door, which takes the key in the user's certificate."""

import os
import shlex
from pathlib import Path


def through(variable: str, door: tuple[str, int, str], address: str, port: int) -> str:
    """A command for ssh's ProxyCommand; the variable names the PEM file, and the door has a host, a port and a user."""
    host, door_port, user = door
    key = Path(os.environ[variable]).absolute()
    ends = ("-W", f"{address}:{port}")
    return shlex.join(("ssh", "-i", str(key), "-p", str(door_port), *ends, f"{user}@{host}"))
