"""Vendor the scripts of pages from the npm registry: Apache ECharts, htmx with its SSE extension, and axe-core for tests.

    python scripts/vendor_scripts.py            # fetches the pinned versions again
    python scripts/vendor_scripts.py --check    # exits 1 if the files differ from their record

This script pins versions and the integrity of their archives. To update, change both to the output of
`npm view echarts@<version> dist.integrity`, and zrender's to the version that ECharts depends on.
"""

import argparse
import base64
import datetime
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Archive:
    """One package of the npm registry, and the names under which its files are kept."""

    package: str
    version: str
    integrity: str
    members: dict[str, str]
    """The script comes first."""
    license: str = ""


ECHARTS = Archive(
    "echarts",
    "6.1.0",
    "sha512-q0yaFPggC9FUdsWH4blavRWFmxdrIodbkoKNAjJudAI6CA9gNPxHtV2RcZNEepZVlk4yvBYkOkbk6HIVpIyHZA==",
    {
        "package/dist/echarts.min.js": "echarts.min.js",
        "package/LICENSE": "LICENSE",
        "package/NOTICE": "NOTICE",
        "package/licenses/LICENSE-d3": "LICENSE-d3",
    },
    "Apache-2.0",
)
# echarts.min.js contains zrender, whose BSD license must be included; nothing else of zrender is kept
ZRENDER = Archive(
    "zrender",
    "6.1.0",
    "sha512-oEGMDB6pOP2S6OwRR4PdVv610zrjnA3Bh+JnSG12fYJlBKjtNAoEb5fSUoCOOINlH96I2fU38/A2UpRKs67xYQ==",
    {"package/LICENSE": "LICENSE-zrender"},
)
HTMX = Archive(
    "htmx.org",
    "2.0.8",
    "sha512-fm297iru0iWsNJlBrjvtN7V9zjaxd+69Oqjh4F/Vq9Wwi2kFisLcrLCiv5oBX0KLfOX/zG8AUo9ROMU5XUB44Q==",
    {"package/dist/htmx.min.js": "htmx.min.js", "package/LICENSE": "LICENSE"},
    "0BSD",
)
HTMX_SSE = Archive(
    "htmx-ext-sse",
    "2.2.4",
    "sha512-LJmxVhykyflBWgh5PvbRidcyuqMHlgfajmmzumvKctv9puvsufeH6OaejSMZTNTnEI8O2wXXn4ZZtBdpEMqmEQ==",
    {"package/dist/sse.min.js": "sse.min.js", "package/LICENSE": "LICENSE"},
    "0BSD",
)
AXE = Archive(
    "axe-core",
    "4.14.0",
    "sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
    {"package/axe.min.js": "axe.min.js", "package/LICENSE": "LICENSE"},
    "MPL-2.0",
)
ROOT = Path(__file__).parents[1]
FOLDERS: dict[Path, tuple[Archive, ...]] = {
    ROOT / "src/gpuyard/report/vendor/echarts": (ECHARTS, ZRENDER),
    ROOT / "src/gpuyard/web/vendor/htmx": (HTMX,),
    ROOT / "src/gpuyard/web/vendor/htmx-ext-sse": (HTMX_SSE,),
    ROOT / "tests/web/vendor/axe-core": (AXE,),
}
"""The archives of each folder; the first one has its script."""


def fetch(archive: Archive, folder: Path) -> Path:
    """Download the archive from the registry."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm not found; run: apt-get install npm")
    packed = subprocess.run(
        [
            npm,
            "pack",
            f"{archive.package}@{archive.version}",
            "--json",
            "--pack-destination",
            folder,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return folder / str(json.loads(packed.stdout)[0]["filename"])


def compute_integrity(content: bytes) -> str:
    """Return the npm integrity string: the algorithm and the base64 digest."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def read_members(archive: Archive, path: Path) -> dict[str, bytes]:
    """Unpack only the files to keep, by their new names."""
    actual = compute_integrity(path.read_bytes())
    if actual != archive.integrity:
        raise SystemExit(
            f"{path.name}: the registry served {actual}, but {archive.integrity} is pinned"
        )
    files: dict[str, bytes] = {}
    with tarfile.open(path) as tar:
        for member, name in archive.members.items():
            content = tar.extractfile(member)
            if content is None:
                raise SystemExit(f"{path.name} has no file {member}")
            files[name] = content.read()
    return files


def format_version_toml(archive: Archive, script: bytes) -> str:
    """Format the record of the vendored version and its checksums."""
    name = next(iter(archive.members.values()))
    return (
        f'package = "{archive.package}"\n'
        f'version = "{archive.version}"\n'
        f'license = "{archive.license}"\n'
        f"vendored = {datetime.datetime.now(datetime.UTC).date().isoformat()}\n"
        f'npm_integrity = "{archive.integrity}"\n'
        f'sha256 = "{hashlib.sha256(script).hexdigest()}"  # of {name}\n'
    )


def check(folder: Path, archive: Archive) -> int:
    """Compare the script on disk with VERSION.toml."""
    recorded = tomllib.loads((folder / "VERSION.toml").read_text(encoding="utf-8"))
    name = next(iter(archive.members.values()))
    actual = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if (recorded["version"], recorded["npm_integrity"]) != (archive.version, archive.integrity):
        print(
            f"{folder}/VERSION.toml has {recorded['version']}, the script pins {archive.version}",
            file=sys.stderr,
        )
        return 1
    if actual != recorded["sha256"]:
        print(f"{name} differs from its checksum in VERSION.toml", file=sys.stderr)
        return 1
    return 0


def vendor(folder: Path, archives: tuple[Archive, ...]) -> None:
    """Fetch the archives and write the files to keep, with their record."""
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for archive in archives:
            files |= read_members(archive, fetch(archive, Path(temporary)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    script = files[next(iter(archives[0].members.values()))]
    (folder / "VERSION.toml").write_text(format_version_toml(archives[0], script), encoding="utf-8")
    print(f"{archives[0].package} {archives[0].version} in {folder}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare the files on disk and fetch nothing"
    )
    if parser.parse_args().check:
        return max(check(folder, archives[0]) for folder, archives in FOLDERS.items())
    for folder, archives in FOLDERS.items():
        vendor(folder, archives)
    return 0


if __name__ == "__main__":
    sys.exit(main())
