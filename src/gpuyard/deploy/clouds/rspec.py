"""GENI RSpec, version 3: write the request for the Virtual Wall, and read the machines from the manifest it returns.

Requests follow those that people run there, and the output of geni-lib 0.9.9, because the schema was not available.
"""

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuyard.errors import GpuyardError, UserMistake, quote

if (
    TYPE_CHECKING
):  # Terraform starts its provider several times per command, and pydantic is slow to import
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


def build_request(
    target: "VirtualWallTarget", nodes: int, rate_bytes_per_second: float | None, public_key: str
) -> str:
    """Return a request for exclusive servers on one private network with this rate between any two."""
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
        _add_link(root, manager, interfaces, _link_properties(target, rate_bytes_per_second))
    keys = SubElement(root, "jfed-ssh-keys:user-ssh-keys", user=target.user_urn)
    SubElement(keys, "jfed-ssh-keys:sshkey").text = public_key
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def _add_link(
    root: Element, manager: str, interfaces: list[str], properties: dict[str, str]
) -> None:
    link = SubElement(root, "link", client_id=_LINK)
    SubElement(link, "component_manager", name=manager)
    for interface in interfaces:
        SubElement(link, "interface_ref", client_id=interface)
    SubElement(link, "link_type", name="lan")
    if properties:
        for source, destination in itertools.permutations(interfaces, 2):
            ends = {"source_id": source, "dest_id": destination}
            SubElement(link, "property", {**ends, **properties})


def _link_properties(
    target: "VirtualWallTarget", rate_bytes_per_second: float | None
) -> dict[str, str]:
    """Return the attributes in RSpec's units: kbit/s, milliseconds, and a probability."""
    properties = {}
    if rate_bytes_per_second is not None:
        properties["capacity"] = str(max(1, round(rate_bytes_per_second * 8 / _BITS_PER_KILOBIT)))
    if target.latency:
        properties["latency"] = f"{target.latency * 1000:g}"
    if target.loss:
        properties["packet_loss"] = f"{target.loss:g}"
    return properties


@dataclass(frozen=True)
class ManifestNode:
    """A machine of a slice."""

    name: str
    address: str
    user: str
    port: int = 22
    private_address: str = ""
    """The address on the slice's private network."""


def read_manifest(text: str, source: str = "the manifest") -> list[ManifestNode]:
    """Return every machine in document order. Raises if one has no ssh login."""
    root, prefix = _parse(text, source, "manifest")
    nodes = [_parse_node(element, prefix) for element in root.all(f"{prefix}node")]
    names = [node.name for node in nodes]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise UserMistake(f"{root.place}: the node {quote(duplicates[0])} occurs twice")
    return nodes


def select_nodes(nodes: list[ManifestNode], names: list[str]) -> list[ManifestNode]:
    """Return the nodes with these names, in this order."""
    by_name = {node.name: node for node in nodes}
    if missing := [name for name in names if name not in by_name]:
        raise GpuyardError(f"the manifest has no {missing[0]}, which was requested")
    return [by_name[name] for name in names]


def read_requested_names(text: str) -> list[str]:
    """Return the names of the machines in a request."""
    root, prefix = _parse(text, "the request", "request")
    return [_attribute(node, "client_id", _WORD) for node in root.all(f"{prefix}node")]


def _parse(text: str, source: str, kind: str) -> "tuple[xml_text.Element, str]":
    """Return the root of an RSpec of this type, and the namespace prefix of its elements."""
    from gpuyard.hardware.readers import xml_text

    root = xml_text.parse_xml(text, source)
    prefix, _, tag = root.tag.rpartition(":")
    if tag != "rspec" or root.attributes.get("type") != kind:
        raise UserMistake(f"{root.place}: expected an RSpec of type {kind}")
    return root, f"{prefix}:" if prefix else ""


def _parse_node(element: "xml_text.Element", prefix: str) -> ManifestNode:
    name = _attribute(element, "client_id", _WORD)
    logins = [
        login
        for services in element.all(f"{prefix}services")
        for login in services.all(f"{prefix}login")
        if login.attributes.get("authentication") == "ssh-keys"
    ]
    if not logins:
        raise UserMistake(f"{element.place}: {quote(name)} has no login with an ssh key")
    login = logins[0]
    port = int(_attribute(login, "port", _PORT))
    if port > 65535:
        raise UserMistake(f"{login.place}: {port} is not a valid port")
    addresses = [
        _attribute(ip, "address", _ADDRESS)
        for interface in element.all(f"{prefix}interface")
        for ip in interface.all(f"{prefix}ip")
        if ip.attributes.get("type", "ipv4") == "ipv4"
    ]
    return ManifestNode(
        name,
        _attribute(login, "hostname", _WORD),
        _attribute(login, "username", _WORD),
        port,
        addresses[0] if addresses else "",
    )


def _attribute(element: "xml_text.Element", name: str, kind: re.Pattern[str]) -> str:
    """Check and return an attribute, which may be written to an ssh configuration."""
    value = element.attributes.get(name, "")
    if not kind.fullmatch(value):
        raise UserMistake(
            f"{element.place}: {quote(value)} is not a valid {name} for {element.tag}"
        )
    return value
