"""ARCHITECTURE.md and the glossary name files, modules, and classes that exist, and the layers that are checked."""

import re
import tomllib
from importlib.util import find_spec

from tests.command_line import ROOT

PACKAGE = ROOT / "src" / "gpuyard"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([^`\s]+)`", TEXT))
PACKAGES = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
OTHER_FOLDERS = {"docs", "scripts", "tests", "schemas", "benchmarks"}


def _exists(path: str) -> bool:
    return (PACKAGE / path).exists() or (ROOT / path).exists()


def test_every_named_path_exists() -> None:
    paths = {name for name in NAMES if re.fullmatch(r"[a-z_]+/[a-z_0-9./]*", name)}
    paths = {path for path in paths if path.partition("/")[0] in PACKAGES | OTHER_FOLDERS}
    assert len(paths) > 25
    assert sorted(path for path in paths if not _exists(path)) == []


def test_every_named_module_exists() -> None:
    """Names are `package.module`, `package.module.name`, or `package.name`."""
    file_endings = (".json", ".sqlite", ".csv", ".lock", ".py")
    dotted = {name for name in NAMES if re.fullmatch(r"[a-z_]+(\.\w+)+", name)}
    dotted = {name for name in dotted if not name.endswith(file_endings)}
    dotted = {name for name in dotted if name.partition(".")[0] in PACKAGES}
    assert len(dotted) > 20
    assert sorted(name for name in dotted if not _defines_module(name)) == []


def _defines_module(name: str) -> bool:
    path, parts = PACKAGE, name.split(".")
    while parts and (path / parts[0]).is_dir():
        path = path / parts.pop(0)
    if parts and (path / f"{parts[0]}.py").is_file():
        path = path / f"{parts.pop(0)}.py"
    else:
        path = path / "__init__.py"
    text = path.read_text(encoding="utf-8")
    return not parts or re.search(rf"\b{re.escape(parts[0])}\b", text) is not None


def test_the_drawn_layers_are_those_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    layers = [layer for layer in contract["layers"] if not layer.startswith("(")]
    drawn = TEXT.partition("From high to low:")[2].partition("`pyproject.toml`")[0].split("\n")
    assert [line.strip() for line in drawn if line.strip()] == layers
    for line in layers:
        for package in line.split(" | "):
            assert find_spec(f"gpuyard.{package}") is not None


def test_every_package_has_a_line() -> None:
    plan = TEXT.partition("## The map")[2].partition("## Layers")[0]
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    for name in {f"{package}/" for package in PACKAGES} | files:
        assert f"\n      {name} " in plan, name


def test_the_glossary_names_classes_that_exist() -> None:
    rows = re.findall(r"`(\w+)` in `(\w+)` \|$", GLOSSARY, re.MULTILINE)
    assert len(rows) > 40
    missing = [f"{name} in {package}" for name, package in rows if not _defines(package, name)]
    assert missing == []


def _defines(package: str, name: str) -> bool:
    pattern = re.compile(rf"^(?:(?:class|def) {name}\b|{name}(?:: .+)? = )", re.MULTILINE)
    files = (PACKAGE / package).rglob("*.py")
    return any(pattern.search(path.read_text(encoding="utf-8")) for path in files)
