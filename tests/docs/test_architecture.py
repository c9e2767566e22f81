"""ARCHITECTURE.md is true: the files and rooms that it names are there, and its layers are those that are checked."""

import re
import tomllib
from importlib.util import find_spec

from tests.command_line import ROOT

PACKAGE = ROOT / "src" / "gpuyard"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\s]+)`", TEXT))
ROOMS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
BESIDE = {"docs", "scripts", "tests", "schemas", "benchmarks"}


def _there(path: str) -> bool:
    return (PACKAGE / path).exists() or (ROOT / path).exists()


def test_every_path_that_it_names_is_there() -> None:
    paths = {name for name in NAMED if re.fullmatch(r"[a-z_]+/[a-z_0-9./]*", name)}
    paths = {path for path in paths if path.partition("/")[0] in ROOMS | BESIDE}
    assert len(paths) > 40
    assert sorted(path for path in paths if not _there(path)) == []


def test_every_module_that_it_names_with_its_room_is_there() -> None:
    """`room.module`, or `room.module.name`, or `room.name` of what the room shows."""
    kept = (".json", ".sqlite", ".csv", ".lock", ".py")  # files, with no room before them
    dotted = {name for name in NAMED if re.fullmatch(r"[a-z_]+(\.\w+)+", name)}
    dotted = {name for name in dotted if not name.endswith(kept)}
    dotted = {name for name in dotted if name.partition(".")[0] in ROOMS}
    assert len(dotted) > 40
    assert sorted(name for name in dotted if not _found(name)) == []


def _found(name: str) -> bool:
    path, rest = PACKAGE, name.split(".")
    while rest and (path / rest[0]).is_dir():
        path = path / rest.pop(0)
    if rest and (path / f"{rest[0]}.py").is_file():
        path = path / f"{rest.pop(0)}.py"
    else:
        path = path / "__init__.py"
    text = path.read_text(encoding="utf-8")
    return not rest or re.search(rf"\b{re.escape(rest[0])}\b", text) is not None


def test_it_draws_the_layers_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    layers = [layer for layer in contract["layers"] if not layer.startswith("(")]
    drawn = TEXT.partition("From high to low:")[2].partition("`pyproject.toml`")[0].split("\n")
    assert [line.strip() for line in drawn if line.strip()] == layers
    for line in layers:
        for room in line.split(" | "):
            assert find_spec(f"gpuyard.{room}") is not None


def test_every_room_has_a_line() -> None:
    plan = TEXT.partition("## The rooms")[2].partition("## Layers")[0]
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    for name in {f"{room}/" for room in ROOMS} | files:
        assert f"\n      {name} " in plan, name


def test_every_noun_is_in_a_room_that_it_names() -> None:
    """By the name in parentheses, where it has another in code; what begins with a small letter is only spoken of."""
    table = TEXT.partition("## The nouns")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \| ([a-z, ]+) \|$", table, re.MULTILINE)
    assert len(rows) > 60
    missing = []
    for nouns, rooms in rows:
        written = "\n".join(
            path.read_text(encoding="utf-8")
            for room in rooms.split(", ")
            for path in (PACKAGE / room).rglob("*.py")
        )
        named = re.sub(r"\w+ \((`.+?)\)", r"\1", nouns).split(", ")
        names = [name.strip("`") for name in named if not name[0].islower()]
        missing += [name for name in names if not _defined(name, written)]
    assert missing == []


def _defined(name: str, text: str) -> bool:
    return (
        re.search(rf"^(?:(?:class|def) {name}\b|{name}(?:: .+)? = )", text, re.MULTILINE)
        is not None
    )
