"""The settings of one server: where it listens, and how it identifies its users."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from socket import AF_INET, AF_INET6, SOCK_DGRAM, getfqdn, gethostname
from socket import socket as Socket  # noqa: N812 - a setting has the name socket
from typing import Literal, get_args

from gpuyard.errors import UserMistake, describe_unknown

AuthName = Literal["own-user", "peer", "token", "proxy"]
"""`own-user`: the user who runs the server, by the kernel's table of loopback connections. `peer`: any user, by the
credentials of a Unix socket."""
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8642
_CHOICES = ("token", "proxy")
_LOOPBACK_NAMES = (LOOPBACK, "localhost")


@dataclass(frozen=True)
class WebSettings:
    """The address of the server, and the way it identifies its users."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    socket: Path | None = None
    """Unix socket to listen on instead of a port."""
    auth: AuthName = "own-user"
    proxies: tuple[str, ...] = ()
    """Addresses of proxies whose header is trusted."""
    proxy_header: str = "X-Forwarded-User"
    host_names: tuple[str, ...] = ()
    """Further names under which browsers reach the server."""
    certificate: Path | None = None
    key: Path | None = None
    slurm: bool = False
    """True if the nodes and jobs of the Slurm cluster are shown, too."""
    deployments: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    @property
    def is_wildcard(self) -> bool:
        """True if the server listens on all addresses of this machine."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound

    @property
    def address(self) -> str:
        """The address that `gpuyard serve` prints: one that a browser can open."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        host = self.host
        if self.is_wildcard:
            is_named = self.host_names or self.certificate  # a certificate seldom names an address
            names = (*self.host_names, getfqdn())
            host = names[0] if is_named else find_own_address(self.host) or getfqdn()
        return f"{self.scheme}://{_bracket(host)}:{self.port}/"

    @cached_property
    def allowed_hosts(self) -> frozenset[str]:
        """The values of the Host header that are served; any other may be an attack through DNS."""
        names = {*_LOOPBACK_NAMES, "[::1]", *self.host_names}
        names |= {gethostname(), getfqdn()} if self.is_wildcard else {_bracket(self.host)}
        return self._add_port(names)

    def allows_host(self, host: str, local_address: str) -> bool:
        """Return whether a Host header names this server; of a wildcard, the address to which the client connected, too."""
        host = host.lower()
        own = self._add_port({_bracket(local_address)}) if self.is_wildcard else frozenset()
        return host in self.allowed_hosts or host in own

    def _add_port(self, names: Iterable[str]) -> frozenset[str]:
        lowered = {name.lower() for name in names}
        return frozenset({*lowered, *(f"{name}:{self.port}" for name in lowered)})


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def find_own_address(wildcard: str) -> str | None:
    """Return the address from which this machine reaches others; no packet is sent."""
    is_ipv6 = ":" in wildcard
    target = "2001:db8::1" if is_ipv6 else "192.0.2.1"  # addresses for documentation
    with Socket(AF_INET6 if is_ipv6 else AF_INET, SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def create_settings(
    *,
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    socket: Path | None = None,
    auth: str | None = None,
    proxies: Sequence[str] = (),
    proxy_header: str = "X-Forwarded-User",
    host_names: Sequence[str] = (),
    certificate: Path | None = None,
    key: Path | None = None,
    slurm: bool = False,
    deployments: Sequence[str] = (),
) -> WebSettings:
    """Check the options of `gpuyard serve`. Raise UserMistake for an address that would be open to everyone."""
    if auth is not None and auth not in _CHOICES:
        raise UserMistake(describe_unknown("value of --auth", auth, _CHOICES))
    if socket is not None and auth is not None:
        raise UserMistake("a Unix socket identifies its users itself; leave out --auth")
    if auth == "proxy" and not proxies:
        raise UserMistake("--auth proxy needs the address of the proxy, like --proxy 10.0.0.5")
    if proxies and auth != "proxy":
        raise UserMistake("--proxy is only for --auth proxy")
    if (certificate is None) != (key is None):
        raise UserMistake("give both --certificate and --key, or neither")
    for path in filter(None, (certificate, key)):
        if not os.access(path, os.R_OK):
            raise UserMistake(f"{path} cannot be read; name a PEM file")
    is_loopback = host in _LOOPBACK_NAMES
    if socket is None and auth is None and not is_loopback:
        raise UserMistake(
            f"{host} can be reached by others: add --auth token (see gpuyard serve token new) or --auth proxy, or listen "
            f"on {LOOPBACK} and use ssh -L {port}:{LOOPBACK}:{port}"
        )
    if socket is None and auth is None and sys.platform != "linux":
        raise UserMistake(
            "only Linux tells which user opened a connection; add --auth token (see gpuyard serve token new)"
        )
    chosen: AuthName = "peer" if socket is not None else "own-user"
    for name in get_args(AuthName):
        if name == auth:
            chosen = name
    return WebSettings(
        host=LOOPBACK if is_loopback else host,
        port=port,
        socket=socket,
        auth=chosen,
        proxies=tuple(proxies),
        proxy_header=proxy_header,
        host_names=tuple(host_names),
        certificate=certificate,
        key=key,
        slurm=slurm,
        deployments=tuple(deployments),
    )
