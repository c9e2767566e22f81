"""Vendor Apache ECharts from the npm registry into src/gpuyard/report/vendor/echarts.

    python scripts/vendor_echarts.py            # fetches the pinned version again
    python scripts/vendor_echarts.py --check    # exits 1 if the files differ from their record

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
)
# echarts.min.js contains zrender, whose BSD license must be included; nothing else of zrender is kept
ZRENDER = Archive(
    "zrender",
    "6.1.0",
    "sha512-oEGMDB6pOP2S6OwRR4PdVv610zrjnA3Bh+JnSG12fYJlBKjtNAoEb5fSUoCOOINlH96I2fU38/A2UpRKs67xYQ==",
    {"package/LICENSE": "LICENSE-zrender"},
)
FOLDER = Path(__file__).parents[1] / "src" / "gpuyard" / "report" / "vendor" / "echarts"


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


def format_version_toml(script: bytes) -> str:
    """Format the record of the vendored version and its checksums."""
    return (
        f'package = "{ECHARTS.package}"\n'
        f'version = "{ECHARTS.version}"\n'
        f'license = "Apache-2.0"\n'
        f"vendored = {datetime.datetime.now(datetime.UTC).date().isoformat()}\n"
        f'npm_integrity = "{ECHARTS.integrity}"\n'
        f'sha256 = "{hashlib.sha256(script).hexdigest()}"  # of echarts.min.js\n'
    )


def check() -> int:
    """Compare the script on disk with VERSION.toml."""
    recorded = tomllib.loads((FOLDER / "VERSION.toml").read_text(encoding="utf-8"))
    actual = hashlib.sha256((FOLDER / "echarts.min.js").read_bytes()).hexdigest()
    if (recorded["version"], recorded["npm_integrity"]) != (
        ECHARTS.version,
        ECHARTS.integrity,
    ):
        print(
            f"VERSION.toml has {recorded['version']}, the script pins {ECHARTS.version}",
            file=sys.stderr,
        )
        return 1
    if actual != recorded["sha256"]:
        print("echarts.min.js differs from its checksum in VERSION.toml", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare the files on disk and fetch nothing"
    )
    if parser.parse_args().check:
        return check()
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for archive in (ECHARTS, ZRENDER):
            files |= read_members(archive, fetch(archive, Path(temporary)))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    (FOLDER / "VERSION.toml").write_text(
        format_version_toml(files["echarts.min.js"]), encoding="utf-8"
    )
    print(f"{ECHARTS.package} {ECHARTS.version} in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
