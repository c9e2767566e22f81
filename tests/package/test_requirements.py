"""Everything that `make` installs is pinned with hashes, so that a changed file in the index is refused."""

import re
from importlib import metadata

import pytest
from packaging.specifiers import SpecifierSet

from tests.conftest import ROOT

REQUIREMENTS = ROOT / "requirements"
ENTRY = re.compile(r"([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
LOCKED = {
    name: version
    for path in REQUIREMENTS.glob("*.txt")
    for name, version, _ in ENTRY.findall(path.read_text())
}


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda path: path.name)
def test_every_package_has_hashes(path: object) -> None:
    text = str(path.read_text())  # type: ignore[attr-defined]
    rest = ENTRY.sub("", text)
    assert all(not line or line.startswith(("#", "-r ")) for line in rest.splitlines()), rest


def test_the_locked_versions_are_those_that_people_chose() -> None:
    for path in REQUIREMENTS.glob("*.in"):
        for name, version in re.findall(
            r"^([A-Za-z0-9._-]+)==(\S+)", path.read_text(), re.MULTILINE
        ):
            locked = LOCKED[re.sub(r"[-_.]+", "-", name).lower()]
            assert locked.partition("+")[0] == version, name


def test_the_makefile_installs_only_what_is_locked() -> None:
    for line in (ROOT / "Makefile").read_text().splitlines():
        if "pip install" in line:
            assert "--require-hashes" in line or "--no-deps --no-build-isolation -e ." in line


def test_every_package_runs_with_the_python_of_debian_12() -> None:
    refused = {
        package.name: package.metadata["Requires-Python"]
        for package in metadata.distributions()
        if re.sub(r"[-_.]+", "-", package.name).lower() in LOCKED
        and "Requires-Python" in package.metadata
        and not SpecifierSet(package.metadata["Requires-Python"]).contains("3.11.2")
    }
    assert not refused
