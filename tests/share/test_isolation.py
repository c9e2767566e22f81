"""Devices that are closed to a lease's processes: with the kernel's own control groups, of both kinds."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.share.isolation import groups
from gpuyard.share.isolation.groups import V1, V2, Groups, usable_kind
from gpuyard.share.service.caller import Caller, this_process
from gpuyard.share.setup import set_up
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.lease import LeaseRequest
from tests.conftest import Cli
from tests.share.conftest import Start, holders, needs_root
from tests.share.test_lease import waits_for

Who = Callable[[], dict[str, Any]]
KINDS = (V2, V1)
# the kernel says EPERM for what is closed; of a test GPU that is open it says that there is no such device
LOOK = (
    "import os, sys\n"
    "for path in sys.argv[1:]:\n"
    "    try:\n        os.close(os.open(path, os.O_RDWR)); print('open', end=' ')\n"
    "    except PermissionError: print('closed', end=' ')\n"
    "    except OSError: print('open', end=' ')\n"
)


@pytest.fixture(params=KINDS)
def isolated(
    share: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """4 test GPUs with devices of their own."""
    kind = str(request.param)
    monkeypatch.setattr(groups, "_TRIED", (kind,))
    try:
        set_up(share, fake_gpus=4, grace_seconds=0.5, isolate=True)
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    yield kind
    remove_groups(share)


def remove_groups(share: Path) -> None:
    """Once their processes are gone, which are being ended."""
    left = Groups(share)

    def gone() -> bool:
        left.sweep(left.ids())
        return not left.ids()

    waits_for(gone)


def devices(share: Path) -> list[str]:
    return [str(share / "devices" / f"gpu{i}") for i in range(4)]


def look(share: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", LOOK, *devices(share), *more]


@needs_root
def test_a_leases_process_tree_can_open_only_its_gpus(
    isolated: str, share: Path, start: Start, who: Who
) -> None:
    asked = ("lease", "--gpus", "1,2", "--", "sh", "-c", '"$@"', "sh", *look(share, "/dev/null"))
    said = start(*asked).communicate(timeout=60)
    assert said == ("closed open open closed open ", "")
    bare = subprocess.run(look(share), capture_output=True, text=True, check=True)
    assert bare.stdout.split() == ["open"] * 4, "who has no lease is found by audit, not stopped"
    # a lease inside of a lease has its own GPUs, not those of both nor of neither
    inner = (sys.executable, "-m", "gpuyard", "lease", "--gpus", "3", "--", *look(share))
    nested = start("lease", "--gpus", "0", "--", *inner).communicate(timeout=60)
    assert nested == ("closed closed closed open ", "")
    assert not holders(who())


@needs_root
def test_what_outlives_its_lease_has_no_gpu_and_empty_groups_go(isolated: str, share: Path) -> None:
    """A process that is in the group of a lease when that ends, as the shell of `--export` is."""
    program = (
        "import sys\nfor line in sys.stdin:\n    import os\n"
        "    try: os.open(line.strip(), os.O_RDWR)\n"
        "    except OSError as error: print(error.errno, flush=True)\n"
    )
    shell = subprocess.Popen(
        (sys.executable, "-c", program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert shell.stdin is not None and shell.stdout is not None

    def tried(gpu: int) -> int:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write(f"{devices(share)[gpu]}\n")
        shell.stdin.flush()
        return int(shell.stdout.readline())

    no_device, not_permitted = 6, 1
    broker = Broker(share)
    me = Caller(0, 0, shell.pid)
    turn, lock = broker.ask(me, LeaseRequest(gpus=(1,)))
    assert (tried(1), tried(2)) == (no_device, not_permitted)
    assert Groups(share).ids() == {turn.lease.id}
    assert broker.finish(me, turn.lease.id, childless=True)
    os.close(lock)
    assert (tried(1), tried(2)) == (not_permitted, not_permitted)
    shell.communicate("")
    sleeping = _sleep()
    turn, lock = broker.ask(Caller(0, 0, sleeping), LeaseRequest())
    assert Groups(share).ids() == {turn.lease.id}, "the group of a lease that is over was left"
    os.kill(sleeping, 9)
    os.waitpid(sleeping, 0)
    os.close(lock)
    broker.state()
    assert Groups(share).ids() == set()
    broker.close()


def _sleep() -> int:
    return os.posix_spawnp("sleep", ["sleep", "600"], os.environ)


@needs_root
def test_every_other_door_to_a_gpu_is_closed_too(
    isolated: str, share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRM's nodes, by the address on the bus, and MIG's instances; stand-ins for both, in the kernel's own layout."""
    doors = _doors(tmp_path, monkeypatch)
    config = share / "share.json"
    document = json.loads(config.read_text())
    for gpu, paths in zip(document["gpus"], doors, strict=False):
        gpu["device"] = paths[0]
    config.write_text(json.dumps({**document, "gpus": document["gpus"][: len(doors)]}))
    line = [sys.executable, "-c", f"input()\n{LOOK}", *(path for paths in doors for path in paths)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    broker = Broker(share)
    _, lock = broker.ask(Caller(0, 0, process.pid), LeaseRequest(gpus=(1,)))
    said = process.communicate("go\n")[0].split()
    os.close(lock)
    broker.state()
    broker.close()
    counts = [len(paths) for paths in doors]
    assert said == [*["closed"] * counts[0], *["open"] * counts[1], *["closed"] * counts[2]]


def _doors(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Of two GPUs of NVIDIA's, the devices of which are not in the order of the bus, and of one of AMD's."""
    for name in ("dev/dri", "dev/nvidia-caps"):
        (root / name).mkdir(parents=True)
    numbers = iter(range(200, 256))  # below "mem": the kernel has none of them

    def door(name: str) -> str:
        os.mknod(root / "dev" / name, 0o020_666, os.makedev(1, next(numbers)))
        return str(root / "dev" / name)

    def write(name: str, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    found = []
    for minor, address in ((1, "0000:3b:00.0"), (0, "0000:af:00.0")):
        write(f"nvidia/gpus/{address}/information", f"Model: \t\t X\nDevice Minor: \t {minor}\n")
        cap = f"nvidia-cap{21 + minor}"
        for place, number in (("gi1/access", 21 + minor), ("gi1/ci0/access", 31 + minor)):
            words = f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
            write(f"nvidia/capabilities/gpu{minor}/mig/{place}", words)
        render = f"renderD{129 - minor}"
        for node in (render, f"card{1 - minor}"):
            (root / "pci" / address / "drm" / node).mkdir(parents=True)
        names = [f"nvidia{minor}", f"dri/{render}", f"dri/card{1 - minor}", f"nvidia-caps/{cap}"]
        found.append([door(name) for name in [*names, f"nvidia-caps/nvidia-cap{31 + minor}"]])
    for node in ("renderD130", "card2"):
        (root / "pci/0000:d8:00.0/drm" / node).mkdir(parents=True)
    (root / "drm/renderD130").mkdir(parents=True)
    (root / "drm/renderD130/device").symlink_to(root / "pci/0000:d8:00.0")
    found.append([door("dri/renderD130"), door("dri/card2")])
    for name, place in (("_DEV", "dev"), ("_DRM", "drm"), ("_PCI", "pci"), ("_NVIDIA", "nvidia")):
        monkeypatch.setattr(f"gpuyard.share.isolation.devices.{name}", root / place)
    return found


@needs_root
def test_a_shell_that_exports_a_lease_has_its_gpus_alone(isolated: str, share: Path) -> None:
    script = 'eval "$("$0" -m gpuyard lease 1 --export)"; "$0" "$@"'
    line = ("bash", "-c", script, *look(share))
    said = subprocess.run(line, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["open", "closed", "closed", "closed"]
    broker = Broker(share)
    waits_for(lambda: not broker.state().held)
    broker.close()


@needs_root
def test_only_own_processes_are_moved(isolated: str, share: Path) -> None:
    broker = Broker(share)
    sleeping = _sleep()
    turn, lock = broker.ask(Caller(65534, 65534, sleeping), LeaseRequest())
    with pytest.raises(GpuyardError, match="is not yours"):
        broker.enclose(Caller(65534, 65534, sleeping), turn.lease.id, os.getpid())
    with pytest.raises(GpuyardError, match="not yours"):
        broker.enclose(this_process(), turn.lease.id, os.getpid())
    os.kill(sleeping, 9)
    os.waitpid(sleeping, 0)
    os.close(lock)
    broker.state()
    broker.close()


@needs_root
def test_which_guard_is_active_is_said(isolated: str, share: Path, cli: Cli, start: Start) -> None:
    leased = start("lease", "1", "--", "sh", "-c", "echo up; exec sleep 60")
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    for command in ("who", "audit"):
        assert "Guard: cgroups." in cli(command).stdout
        assert json.loads(cli(command, "--json").stdout)["guard"] == "cgroups"
    said = json.loads(cli("who", "--json").stdout)
    assert [lease["isolated"] for lease in said["gpus"][0]["leases"]] == [True]
    kept = cli("share", "setup", "--fake-gpus", "4", "--no-service").stderr
    assert "Guard: cgroups." in kept
    off = cli("share", "setup", "--fake-gpus", "4", "--no-isolate", "--no-service").stderr
    assert "Guard: audit." in off and "Guard: audit." in cli("who").stdout
    leased.terminate()
    assert leased.wait(60) == 143


def test_where_it_cant_be_had_set_up_says_what_is_the_guard_then(
    share: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_TRIED", ())
    with pytest.raises(MissingRequirement, match="`gpuyard audit` is the guard"):
        usable_kind()
    with pytest.raises(MissingRequirement):
        set_up(share, fake_gpus=4, isolate=True)
    assert json.loads(cli("who", "--json").stdout)["guard"] == "audit"


@needs_root
def test_a_lease_that_cant_be_isolated_is_refused(
    isolated: str, share: Path, cli: Cli, who: Who
) -> None:
    config = share / "share.json"
    config.write_text(config.read_text().replace(isolated, "cgroup9"), encoding="utf-8")
    refused = cli("lease", "1", "--now", "--", "true", status=1).stderr
    assert "can't be closed" in refused and "--no-isolate" in refused
    assert holders(who()) == {} and who()["queue"] == []


DELEGATED = """
import os, subprocess, sys
from pathlib import Path
from gpuyard.share.isolation.groups import V2, Groups
mount, nobody = Path(sys.argv[1]), 65534
subprocess.run(("mount", "-t", "cgroup2", "none", mount), check=True)
theirs = mount / f"delegated-{os.getpid()}"
theirs.mkdir()
for path in (theirs, theirs / "cgroup.procs"):
    os.chown(path, nobody, nobody)
leave = f"read go; echo $$ > {theirs}/cgroup.procs; echo tried; read go"
process = subprocess.Popen(("sh", "-c", leave), user=nobody, stdin=-1, stdout=-1, stderr=-1)
try:
    (theirs / "cgroup.procs").write_text(str(process.pid))
    share = Path(sys.argv[2])
    Groups(share).enclose("0000abcd", process.pid, V2, own=[], others=[])
    process.stdin.write(b"go\\n"); process.stdin.flush(); process.stdout.readline()
    print([line for line in Path(f"/proc/{process.pid}/cgroup").read_text().split() if line.startswith("0:")][0])
finally:
    process.kill(); process.wait()
    Groups(share).sweep(["0000abcd"])
    theirs.rmdir()
"""


@needs_root
def test_nobody_leaves_by_a_group_that_systemd_has_given_them(share: Path) -> None:
    """In one of a user's own, they could move processes out of the lease's below it."""
    with tempfile.TemporaryDirectory() as mount:
        Path(mount).chmod(0o755)
        inside = (sys.executable, "-c", DELEGATED, mount, str(share))
        # a mount of its own: other tests take what is mounted for what this machine has
        said = subprocess.run(("unshare", "--mount", *inside), capture_output=True, text=True)  # noqa: PLW1510
    if "mount" in said.stderr.lower():
        pytest.skip("no cgroup v2 here")
    assert said.stdout == "0::/gpuyard-lease-0000abcd\n", said.stderr
