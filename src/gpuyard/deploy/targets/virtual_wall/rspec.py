"""GENI's RSpec, version 3: the request that the Virtual Wall is given, and the manifest that it answers with, as machines
that ssh reaches.

Requests are written from those that people run there, and from what geni-lib 0.9.9 writes; the schema itself could
not be had.
"""

import itertools
import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.hardware.readers import xml_text
from gpuyard.specs.targets.testbeds import VirtualWallTarget

RSPEC = "http://www.geni.net/resources/rspec/3"
SSH_KEYS = "http://jfed.iminds.be/rspec/ext/jfed-ssh-keys/1"
_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_LINK = "lan0"
_BITS_PER_KILOBIT = 1000
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


def request(
    target: VirtualWallTarget, nodes: int, rate_bytes_per_second: float | None, public_key: str
) -> str:
    """Servers that nobody else has, all on one network of their own with this rate between any two."""
    manager = f"urn:publicid:IDN+{target.testbed}+authority+cm"
    root = Element(
        "rspec",
        {
            "xmlns": RSPEC,
            "xmlns:jfed-ssh-keys": SSH_KEYS,
            "xmlns:xsi": _SCHEMA_INSTANCE,
            "xsi:schemaLocation": f"{RSPEC} {RSPEC}/request.xsd",
            "type": "request",
        },
    )
    interfaces = [f"node{index}:if0" for index in range(nodes)] if nodes > 1 else []
    for index in range(nodes):
        node = SubElement(
            root,
            "node",
            client_id=f"node{index}",
            component_manager_id=manager,
            exclusive="true",
        )
        sliver = SubElement(node, "sliver_type", name="raw-pc")
        if target.disk_image is not None:
            SubElement(sliver, "disk_image", name=target.disk_image)
        if target.hardware_type is not None:
            SubElement(node, "hardware_type", name=target.hardware_type)
        if interfaces:
            interface = SubElement(node, "interface", client_id=interfaces[index])
            SubElement(
                interface,
                "ip",
                address=f"192.168.0.{index + 1}",
                netmask="255.255.255.0",
                type="ipv4",
            )
    if interfaces:
        _link(root, manager, interfaces, _shape(target, rate_bytes_per_second))
    keys = SubElement(root, "jfed-ssh-keys:user-ssh-keys", user=target.user_urn)
    SubElement(keys, "jfed-ssh-keys:sshkey").text = public_key
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def _link(root: Element, manager: str, interfaces: list[str], shape: dict[str, str]) -> None:
    link = SubElement(root, "link", client_id=_LINK)
    SubElement(link, "component_manager", name=manager)
    for interface in interfaces:
        SubElement(link, "interface_ref", client_id=interface)
    SubElement(link, "link_type", name="lan")
    if shape:
        for source, destination in itertools.permutations(interfaces, 2):
            ends = {"source_id": source, "dest_id": destination}
            SubElement(link, "property", {**ends, **shape})


def _shape(target: VirtualWallTarget, rate_bytes_per_second: float | None) -> dict[str, str]:
    """In kbit/s, ms and a probability."""
    shape = {}
    if rate_bytes_per_second is not None:
        shape["capacity"] = str(max(1, round(rate_bytes_per_second * 8 / _BITS_PER_KILOBIT)))
    if target.latency:
        shape["latency"] = f"{target.latency * 1000:g}"
    if target.loss:
        shape["packet_loss"] = f"{target.loss:g}"
    return shape


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
    root = xml_text.parse_xml(text, source)
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
    root = xml_text.parse_xml(text, "the request")
    prefix, _, tag = root.tag.rpartition(":")
    if tag != "rspec" or root.attributes.get("type") != "request":
        raise UserMistake(f"{root.place}: expected an RSpec of the type request")
    inside = f"{prefix}:" if prefix else ""
    return [_attribute(node, "client_id", _WORD) for node in root.all(f"{inside}node")]


def _node(element: xml_text.Element, inside: str) -> ManifestNode:
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


def _attribute(element: xml_text.Element, name: str, kind: re.Pattern[str]) -> str:
    """It comes to stand in ssh's configuration."""
    value = element.attributes.get(name, "")
    if not kind.fullmatch(value):
        raise UserMistake(f"{element.place}: {quoted(value)} is not the {name} of a {element.tag}")
    return value
