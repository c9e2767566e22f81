"""What the Virtual Wall is asked for: a request in GENI's RSpec, version 3.

Written from requests that people run there, and from what geni-lib 0.9.9 writes; the schema itself could not be had.
"""

import itertools
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuyard.specs.targets.testbeds import VirtualWallTarget

RSPEC = "http://www.geni.net/resources/rspec/3"
SSH_KEYS = "http://jfed.iminds.be/rspec/ext/jfed-ssh-keys/1"
_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_LINK = "lan0"
_BITS_PER_KILOBIT = 1000


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
