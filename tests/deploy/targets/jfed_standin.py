"""A stand-in for jFed's `java -jar experimenter-cli.jar`, with a directory in place of the Virtual Wall.

Each slice is a file in GPUYARD_STANDIN; one without a request has no machines. The file `refuse` has the message with which new
machines are rejected, and `killed` makes `create` fail after it has them. It checks every element, attribute, and reference of
a request against RSpec version 3 as we know it.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

THERE = Path(os.environ["GPUYARD_STANDIN"])
GENI = "{http://www.geni.net/resources/rspec/3}"
KEYS = "{http://jfed.iminds.be/rspec/ext/jfed-ssh-keys/1}"
_SCHEMA_LOCATION = "{http://www.w3.org/2001/XMLSchema-instance}schemaLocation"
_NAME, _NUMBER = r"[A-Za-z][A-Za-z0-9:-]*", r"[0-9]+"
_URN = r"urn:publicid:IDN\+[^+ ]+\+(authority\+cm|user\+\w+|image\+\S+)"
_NODE, _LINK = "rspec/node", "rspec/link"
# The path of an element → its attributes (required ones are marked with `!`), and its minimum and maximum count.
KNOWN: dict[str, tuple[dict[str, str], int, int]] = {
    "rspec": ({"type!": "request", _SCHEMA_LOCATION: r".*/rspec/3/request\.xsd"}, 1, 1),
    _NODE: ({"client_id!": _NAME, "component_manager_id!": _URN, "exclusive!": "true"}, 1, 254),
    f"{_NODE}/sliver_type": ({"name!": "raw-pc"}, 1, 1),
    f"{_NODE}/sliver_type/disk_image": ({"name!": _URN}, 0, 1),
    f"{_NODE}/hardware_type": ({"name!": r"[\w.-]+"}, 0, 1),
    f"{_NODE}/interface": ({"client_id!": _NAME}, 0, 1),
    f"{_NODE}/interface/ip": (
        {"address!": r"192\.168\.0\.\d+", "netmask!": r"255\.255\.255\.0", "type!": "ipv4"}, 1, 1,
    ),
    _LINK: ({"client_id!": _NAME}, 0, 1),
    f"{_LINK}/component_manager": ({"name!": _URN}, 1, 1),
    f"{_LINK}/interface_ref": ({"client_id!": _NAME}, 2, 254),
    f"{_LINK}/link_type": ({"name!": "lan"}, 1, 1),
    f"{_LINK}/property": (
        {
            "source_id!": _NAME, "dest_id!": _NAME, "capacity": _NUMBER, "latency": r"[0-9.]+",
            "packet_loss": r"0\.[0-9]+",
        }, 0, 254 * 253,
    ),
    "rspec/user-ssh-keys": ({"user!": _URN}, 0, 1),
    "rspec/user-ssh-keys/sshkey": ({}, 1, 1),
}  # fmt: skip


def fail(message: str) -> None:
    print(message)  # noqa: T201
    raise SystemExit(1)


def check(text: str) -> ElementTree.Element:
    """Return the parsed request; exit if it is invalid."""
    root = ElementTree.fromstring(text)  # noqa: S314
    _check(root, _tag(root))
    interfaces = {element.attrib["client_id"] for element in root.iter(f"{GENI}interface")}
    references = {element.attrib["client_id"] for element in root.iter(f"{GENI}interface_ref")}
    if interfaces != references:
        fail(f"the link does not join the interfaces: {interfaces ^ references}")
    pairs = [(p.attrib["source_id"], p.attrib["dest_id"]) for p in root.iter(f"{GENI}property")]
    if len(pairs) != len(set(pairs)) or any(a == b or not {a, b} <= references for a, b in pairs):
        fail(f"properties of links that are none: {pairs}")
    addresses = [element.attrib["address"] for element in root.iter(f"{GENI}ip")]
    names = [element.attrib["client_id"] for element in root.iter(f"{GENI}node")]
    if len(set(addresses)) != len(addresses) or len(set(names)) != len(names):
        fail("two nodes are the same")
    return root


def _tag(element: ElementTree.Element) -> str:
    for namespace in (GENI, KEYS):
        if element.tag.startswith(namespace):
            return element.tag.removeprefix(namespace)
    fail(f"{element.tag} is of no namespace that is known")
    raise AssertionError


def _check(element: ElementTree.Element, where: str) -> None:
    if where not in KNOWN:
        fail(f"no such element: {where}")
    patterns = {name.rstrip("!"): pattern for name, pattern in KNOWN[where][0].items()}
    needed = {name[:-1] for name in KNOWN[where][0] if name.endswith("!")}
    if missing := needed - set(element.attrib):
        fail(f"{where} has no {missing}")
    for name, value in element.attrib.items():
        if name not in patterns or not re.fullmatch(patterns[name], value):
            fail(f"{where}: {name}={value!r}")
    children = [f"{where}/{_tag(child)}" for child in element]
    for path_, (_, minimum, maximum) in KNOWN.items():
        if path_.rpartition("/")[0] == where and not minimum <= children.count(path_) <= maximum:
            fail(f"{where} has {children.count(path_)} of {path_}")
    for child, slice_ in zip(element, children, strict=True):
        _check(child, slice_)


def manifest(root: ElementTree.Element, user: str) -> str:
    """Return the request with each node's location, as the Virtual Wall writes it."""
    ElementTree.register_namespace("", GENI[1:-1])
    ElementTree.register_namespace(
        "emulab", "http://www.protogeni.net/resources/rspec/ext/emulab/1"
    )
    root.set("type", "manifest")
    for number, node in enumerate(root.iter(f"{GENI}node")):
        manager = node.attrib["component_manager_id"].split("+")[1]
        node.set("component_id", f"urn:publicid:IDN+{manager}+node+n06{number}-17b")
        node.set("sliver_id", f"urn:publicid:IDN+{manager}+sliver+11794{number}")
        emulab = "{http://www.protogeni.net/resources/rspec/ext/emulab/1}vnode"
        ElementTree.SubElement(node, emulab, name=f"n06{number}-17b")
        services = ElementTree.SubElement(node, f"{GENI}services")
        where = {"hostname": f"n06{number}-17b.{manager}", "port": "22", "username": user}
        ElementTree.SubElement(services, f"{GENI}login", {"authentication": "ssh-keys", **where})
    return ElementTree.tostring(root, encoding="unicode")


def main(arguments: list[str]) -> None:
    assert arguments[0] == "-jar"
    command, rest = arguments[2], arguments[3:]
    creates = "--create-slice" in rest
    rest = [word for word in rest if word != "--create-slice"]
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    allowed = {"-s", "-S", "-p", "--rspec"}
    if command in ("create", "manifest"):
        allowed |= {"--manifest"}
    if command == "create":
        allowed |= {"--ssh-keys", "--expiration-hours"}
    if set(options) != allowed:
        fail(f"{command} takes {allowed}, got {set(options)}")
    if not Path(options["-p"]).read_text().startswith("-----BEGIN"):
        fail("no certificate")
    request = check(Path(options["--rspec"]).read_text())
    path = THERE / f"{options['-s']}.slice"
    slice_: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    urn = f"urn:publicid:IDN+wall2.ilabt.iminds.be:{options['-S']}+slice+{options['-s']}"
    if slice_ is None and not (command == "create" and creates):
        fail(f"The slice {urn} does not exist. Cannot continue.")
    if slice_ is not None and creates:
        fail(f"The slice {urn} exists already.")
    answer(command, options, path, slice_ or {"machines": None}, request)


def answer(
    command: str, options: dict[str, str], path: Path, slice_: dict[str, Any],
    request: ElementTree.Element,
) -> None:  # fmt: skip
    match command:
        case "status":
            print(f"The sliver has status {'READY' if slice_['machines'] else 'UNALLOCATED'}")  # noqa: T201
            return
        case "create":
            slice_ = {"machines": None, "hours": int(options["--expiration-hours"])}
            path.write_text(json.dumps(slice_))
            if (THERE / "refuse").exists():
                fail((THERE / "refuse").read_text())
            slice_["machines"] = ElementTree.tostring(request, encoding="unicode")
            path.write_text(json.dumps(slice_))
            if (THERE / "killed").exists():
                fail("Exception in thread main")
        case "delete":
            path.write_text(json.dumps({**slice_, "machines": None}))
        case "manifest":
            pass
        case _:
            fail(f"Unknown command {command}")
    if "--manifest" in options:
        Path(options["--manifest"]).write_text(manifest(request, "alice"))
        print("The sliver is ready.")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
