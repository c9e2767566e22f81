"""Write requirements/*.txt from requirements/*.in: every package with its version and the hashes of its files.

Run it with a Python of this project after a change of an .in file: python scripts/lock_requirements.py
"""

import html.parser
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
INDEX = "https://pypi.org/simple"
NAMES = ("train", "dev", "soak")
# PyTorch's CPU build is not in this index but in https://download.pytorch.org/whl/cpu; this is its file for CPython 3.11
# on x86_64. With any other, `make` installs PyPI's build.
TORCH_CPU_SHA256 = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
HEAD = "# Written by scripts/lock_requirements.py"
_FILE = re.compile(r"/([^/#]+)#sha256=([0-9a-f]{64})$")


class _Links(html.parser.HTMLParser):
    """The addresses of a project's page in the index."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if (tag, name) == ("a", "href") and value]


def main() -> None:
    versions = _resolve(
        NAMES[-1], {}
    )  # one set of versions for all, so that none changes another's
    locked: dict[str, str] = {}
    for name in NAMES:
        resolved = versions if name == NAMES[-1] else _resolve(name, versions)
        own = {n: v for n, v in resolved.items() if n not in locked and n != "torch"}
        locked |= own
        head = f"{HEAD} from {name}.in.\n"
        previous = NAMES[NAMES.index(name) - 1] if name != NAMES[0] else ""
        lines = [f"-r {previous}.txt\n"] if previous else []
        lines += [_lock(package, version) for package, version in sorted(own.items())]
        (REQUIREMENTS / f"{name}.txt").write_text(head + "".join(lines), encoding="utf-8")
        sys.stdout.write(f"{name}.txt: {len(own)} packages\n")
    _write_torch(locked, versions["torch"].partition("+")[0])


def _write_torch(locked: dict[str, str], version: str) -> None:
    """Lock both builds of PyTorch; PyPI's also needs CUDA's libraries."""
    cpu = f"torch=={version}+cpu \\\n    --hash=sha256:{TORCH_CPU_SHA256}\n"
    pypi = _resolve(NAMES[0], locked, "--isolated", "--index-url", INDEX, "--only-binary", ":all:")
    cuda = [_lock(name, pin) for name, pin in sorted(pypi.items()) if name not in locked]
    for build, lines in (("cpu", [cpu]), ("cuda", cuda)):
        text = "".join([f"{HEAD}: PyTorch's {build.upper()} build.\n-r train.txt\n", *lines])
        (REQUIREMENTS / f"torch-{build}.txt").write_text(text, encoding="utf-8")


def _resolve(name: str, constraints: dict[str, str], *more: str) -> dict[str, str]:
    """Ask pip which versions it would install for an .in file."""
    with tempfile.NamedTemporaryFile() as report, tempfile.NamedTemporaryFile("w") as pins:
        pins.write("".join(f"{package}=={version}\n" for package, version in constraints.items()))
        pins.flush()
        command = (sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed")
        files = ("-r", str(REQUIREMENTS / f"{name}.in"), "-c", pins.name)
        subprocess.run((*command, "--quiet", "--report", report.name, *files, *more), check=True)
        entries = json.loads(Path(report.name).read_text(encoding="utf-8"))["install"]
    return {
        re.sub(r"[-_.]+", "-", entry["metadata"]["name"]).lower(): entry["metadata"]["version"]
        for entry in entries
    }


def _lock(package: str, version: str) -> str:
    """Return the requirement with the hashes of all files of the version, for every system and Python."""
    with urllib.request.urlopen(f"{INDEX}/{package}/", timeout=60) as response:  # noqa: S310
        links = _Links()
        links.feed(response.read().decode())
    files = [match.groups() for address in links.addresses if (match := _FILE.search(address))]
    hashes = {sha256 for file, sha256 in files if _is_version(file, package, version)}
    if not hashes:
        sys.exit(f"{INDEX} has no file of {package} {version}")
    lines = [f"    --hash=sha256:{sha256}" for sha256 in sorted(hashes)]
    return f"{package}=={version} \\\n" + " \\\n".join(lines) + "\n"


def _is_version(file: str, package: str, version: str) -> bool:
    name = re.sub(r"[-_.]+", "[-_.]+", package)
    end = r"(-.*\.whl|\.tar\.gz|\.zip|\.tar\.bz2)"
    return re.fullmatch(f"{name}-{re.escape(version)}{end}", file, re.IGNORECASE) is not None


if __name__ == "__main__":
    main()
