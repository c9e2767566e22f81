"""What the Virtual Wall answers: a manifest in GENI's RSpec, version 3, as machines that ssh reaches."""

import re
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.hardware.readers.xml_text import Element, parse_xml

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True)
class ManifestNode:
    """One machine of a slice."""

    name: str
    address: str
    user: str
    port: int = 22
    private_address: str = ""
    """On the slice's own network."""


def read_manifest(text: str, source: str = "the manifest") -> list[ManifestNode]:
    """Every machine, in the order in which they are written. Raises where one can't be logged in to."""
    root = parse_xml(text, source)
    prefix, _, tag = root.tag.rpartition(":")
    if tag != "rspec" or root.attributes.get("type") != "manifest":
        raise UserMistake(f"{root.place}: expected an RSpec of the type manifest")
    inside = f"{prefix}:" if prefix else ""
    nodes = [_node(element, inside) for element in root.all(f"{inside}node")]
    names = [node.name for node in nodes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserMistake(f"{root.place}: the node {quoted(twice[0])} is there twice")
    return nodes


def expected(nodes: list[ManifestNode], names: list[str]) -> list[ManifestNode]:
    """These, in this order."""
    there = {node.name: node for node in nodes}
    if missing := [name for name in names if name not in there]:
        raise GpuyardError(f"the manifest has no {missing[0]}, which was asked for")
    return [there[name] for name in names]


def names_asked_for(text: str) -> list[str]:
    """Of the machines in a request."""
    root = parse_xml(text, "the request")
    prefix, _, tag = root.tag.rpartition(":")
    if tag != "rspec" or root.attributes.get("type") != "request":
        raise UserMistake(f"{root.place}: expected an RSpec of the type request")
    inside = f"{prefix}:" if prefix else ""
    return [_attribute(node, "client_id", _WORD) for node in root.all(f"{inside}node")]


def _node(element: Element, inside: str) -> ManifestNode:
    name = _attribute(element, "client_id", _WORD)
    logins = [
        login
        for services in element.all(f"{inside}services")
        for login in services.all(f"{inside}login")
        if login.attributes.get("authentication") == "ssh-keys"
    ]
    if not logins:
        raise UserMistake(f"{element.place}: nobody can log in to {quoted(name)} with an ssh key")
    login = logins[0]
    port = int(_attribute(login, "port", _PORT))
    if port > 65535:
        raise UserMistake(f"{login.place}: {port} is not a port")
    addresses = [
        _attribute(ip, "address", _ADDRESS)
        for interface in element.all(f"{inside}interface")
        for ip in interface.all(f"{inside}ip")
        if ip.attributes.get("type", "ipv4") == "ipv4"
    ]
    return ManifestNode(
        name,
        _attribute(login, "hostname", _WORD),
        _attribute(login, "username", _WORD),
        port,
        addresses[0] if addresses else "",
    )


def _attribute(element: Element, name: str, kind: re.Pattern[str]) -> str:
    """It comes to stand in ssh's configuration."""
    value = element.attributes.get(name, "")
    if not kind.fullmatch(value):
        raise UserMistake(f"{element.place}: {quoted(value)} is not the {name} of a {element.tag}")
    return value
