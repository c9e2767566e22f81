"""Closed devices, with both kinds of the kernel's control groups."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.share import cgroup
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.cgroup import V1, V2, Cgroups, find_usable_kind
from gpuyard.share.config import read_config
from gpuyard.share.models import LeaseRequest
from gpuyard.share.setup import set_up
from tests.conftest import Cli
from tests.share.conftest import Start, acting_as, holders, needs_root
from tests.share.test_lease import waits_for

Who = Callable[[], dict[str, Any]]
KINDS = (V2, V1)
# the kernel returns EPERM for a closed device, and "no such device" for the open device of a test GPU
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
    """4 test GPUs with their own devices."""
    kind = str(request.param)
    monkeypatch.setattr(cgroup, "_KINDS", (kind,))
    try:
        set_up(share, fake_gpus=4, grace_seconds=0.5, isolate=True)
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    yield kind
    remove_groups(share)


def remove_groups(share: Path) -> None:
    """Remove the control groups once their processes have ended."""
    cgroups = Cgroups(share)

    def gone() -> bool:
        cgroups.sweep(cgroups.lease_ids())
        return not cgroups.lease_ids()

    waits_for(gone)


def devices(share: Path) -> list[str]:
    return [str(share / "devices" / f"gpu{i}") for i in range(4)]


def look(share: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", LOOK, *devices(share), *more]


@needs_root
def test_a_leases_process_tree_can_open_only_its_gpus(
    isolated: str, share: Path, start: Start, who: Who
) -> None:
    arguments = (
        "lease",
        "--gpu-ids",
        "1,2",
        "--",
        "sh",
        "-c",
        '"$@"',
        "sh",
        *look(share, "/dev/null"),
    )
    output = start(*arguments).communicate(timeout=60)
    assert output == ("closed open open closed open ", "")
    bare = subprocess.run(look(share), capture_output=True, text=True, check=True)
    assert bare.stdout.split() == ["open"] * 4, "who has no lease is found by audit, not stopped"
    # a lease inside another lease can open its own GPUs, and not those of the outer one
    inner = (sys.executable, "-m", "gpuyard", "lease", "--gpu-ids", "3", "--", *look(share))
    nested = start("lease", "--gpu-ids", "0", "--", *inner).communicate(timeout=60)
    assert nested == ("closed closed closed open ", "")
    assert not holders(who())


@needs_root
def test_processes_that_outlive_a_lease_lose_its_gpus_and_empty_groups_are_removed(
    isolated: str, share: Path
) -> None:
    """The shell of `--export` is still in the group of the lease when that ends."""
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
    status, lock = acting_as(broker, me).ask(LeaseRequest(gpus=(1,)))
    assert (tried(1), tried(2)) == (no_device, not_permitted)
    assert Cgroups(share).lease_ids() == {status.lease.id}
    assert acting_as(broker, me).finish(status.lease.id, childless=True)
    os.close(lock)
    assert (tried(1), tried(2)) == (not_permitted, not_permitted)
    shell.communicate("")
    sleeping = _sleep()
    status, lock = acting_as(broker, Caller(0, 0, sleeping)).ask(LeaseRequest())
    assert Cgroups(share).lease_ids() == {status.lease.id}, (
        "the group of a lease that is over was left"
    )
    os.kill(sleeping, 9)
    os.waitpid(sleeping, 0)
    os.close(lock)
    broker.state()
    assert Cgroups(share).lease_ids() == set()
    broker.close()


# waits for a line, then leaves a child that has no mark of the lease
LEAVE_CHILD = (
    "import os, sys, time\n"
    "sys.stdin.readline()\n"
    "if os.fork() == 0:\n"
    "    while sys.argv[1] == 'forking':\n"
    "        if os.fork(): os._exit(0)\n"
    "    time.sleep(600)\n"
    "print('left', flush=True)\n"
)


@needs_root
@pytest.mark.parametrize("child", ["sleeping", "forking"])
def test_gpus_are_not_given_away_while_a_process_lives_in_the_group(
    isolated: str, share: Path, child: str
) -> None:
    launcher = subprocess.Popen(
        (sys.executable, "-c", LEAVE_CHILD, child),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdin is not None and launcher.stdout is not None
    broker = acting_as(Broker(share), Caller(0, 0, launcher.pid))
    status, lock = broker.ask(LeaseRequest(count=4))
    launcher.stdin.write("\n")
    launcher.stdin.flush()
    assert launcher.stdout.readline() == "left\n"
    launcher.wait()
    os.close(lock)
    group = Path(json.loads((share / "isolated" / status.lease.id).read_text())["group"])
    assert [lease.id for lease in broker.state().held] == [status.lease.id]
    broker.release(status.lease.id)
    assert not group.exists(), "only an empty group can be removed"
    assert broker.state().held == ()
    launcher.communicate()
    broker.close()


@needs_root
def test_a_launcher_in_the_group_counts_only_while_it_uses_a_gpu(
    isolated: str, share: Path
) -> None:
    """The device that always is full stands in for a GPU, because those of test GPUs cannot be opened."""
    config = read_config(share)
    device = share / "full"
    os.mknod(device, 0o020_666, os.makedev(1, 7))
    replace(config, gpus=(replace(config.gpus[0], device=str(device)),)).write(share)
    program = (
        "import sys\nfor line in sys.stdin:\n    opened = open(sys.argv[1]) if 'open' in line else None\n"
        "    print(line, flush=True, end='')\n"
    )
    launcher = subprocess.Popen(
        (sys.executable, "-c", program, str(device)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    broker = acting_as(Broker(share), Caller(0, 0, launcher.pid))
    _, lock = broker.ask(LeaseRequest())
    held = []
    for line in ("open\n", "close\n"):
        assert launcher.stdin is not None and launcher.stdout is not None
        launcher.stdin.write(line)
        launcher.stdin.flush()
        assert launcher.stdout.readline() == line
        if line == "open\n":
            os.close(lock)
        held.append(len(broker.state().held))
    launcher.communicate()
    assert held == [1, 0]
    broker.state()
    broker.close()


def _sleep() -> int:
    return os.posix_spawnp("sleep", ["sleep", "600"], os.environ)


@needs_root
def test_all_device_files_of_a_gpu_are_closed(
    isolated: str, share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRM nodes, found by PCI address, and MIG instances: stand-ins for both, in the kernel's own layout."""
    device_files = create_device_files(tmp_path, monkeypatch)
    config = share / "share.json"
    document = json.loads(config.read_text())
    for gpu, paths in zip(document["gpus"], device_files, strict=False):
        gpu["device"] = paths[0]
    config.write_text(json.dumps({**document, "gpus": document["gpus"][: len(device_files)]}))
    line = [
        sys.executable,
        "-c",
        f"input()\n{LOOK}",
        *(path for paths in device_files for path in paths),
    ]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    broker = Broker(share)
    _, lock = acting_as(broker, Caller(0, 0, process.pid)).ask(LeaseRequest(gpus=(1,)))
    output = process.communicate("go\n")[0].split()
    os.close(lock)
    broker.state()
    broker.close()
    counts = [len(paths) for paths in device_files]
    assert output == [*["closed"] * counts[0], *["open"] * counts[1], *["closed"] * counts[2]]


def create_device_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Create the devices of two NVIDIA GPUs, numbered in another order than on the bus, and of one AMD GPU."""
    for name in ("dev/dri", "dev/nvidia-caps"):
        (root / name).mkdir(parents=True)
    numbers = iter(range(200, 256))  # below "mem": the kernel has none of them

    def door(name: str) -> str:
        os.mknod(root / "dev" / name, 0o020_666, os.makedev(1, next(numbers)))
        return str(root / "dev" / name)

    def write(name: str, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    devices_by_gpu = []
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
        devices_by_gpu.append(
            [door(name) for name in [*names, f"nvidia-caps/nvidia-cap{31 + minor}"]]
        )
    for node in ("renderD130", "card2"):
        (root / "pci/0000:d8:00.0/drm" / node).mkdir(parents=True)
    (root / "drm/renderD130").mkdir(parents=True)
    (root / "drm/renderD130/device").symlink_to(root / "pci/0000:d8:00.0")
    devices_by_gpu.append([door("dri/renderD130"), door("dri/card2")])
    for name, place in (("_DEV", "dev"), ("_DRM", "drm"), ("_PCI", "pci"), ("_NVIDIA", "nvidia")):
        monkeypatch.setattr(f"gpuyard.share.devices.{name}", root / place)
    return devices_by_gpu


@needs_root
def test_a_shell_that_exports_a_lease_can_open_only_its_gpus(isolated: str, share: Path) -> None:
    script = 'eval "$("$0" -m gpuyard lease 1 --export)"; "$0" "$@"'
    line = ("bash", "-c", script, *look(share))
    output = subprocess.run(line, capture_output=True, text=True, check=True)
    assert output.stdout.split() == ["open", "closed", "closed", "closed"]
    broker = Broker(share)
    waits_for(lambda: not broker.state().held)
    broker.close()


@needs_root
def test_only_own_processes_are_moved(isolated: str, share: Path) -> None:
    broker = Broker(share)
    sleeping = _sleep()
    status, lock = acting_as(broker, Caller(65534, 65534, sleeping)).ask(LeaseRequest())
    with pytest.raises(GpuyardError, match="is not yours"):
        acting_as(broker, Caller(65534, 65534, sleeping)).enclose(status.lease.id, os.getpid())
    with pytest.raises(GpuyardError, match=status.lease.id):
        broker.enclose(status.lease.id, os.getpid())
    os.kill(sleeping, 9)
    os.waitpid(sleeping, 0)
    os.close(lock)
    broker.state()
    broker.close()


@needs_root
def test_who_audit_and_setup_show_the_active_guard(
    isolated: str, share: Path, cli: Cli, start: Start
) -> None:
    leased = start("lease", "1", "--", "sh", "-c", "echo up; exec sleep 60")
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    for command in ("who", "audit"):
        assert "Guard: cgroups." in cli(command).stdout
        assert json.loads(cli(command, "--json").stdout)["guard"] == "cgroups"
    output = json.loads(cli("who", "--json").stdout)
    assert [lease["isolated"] for lease in output["gpus"][0]["leases"]] == [True]
    kept = cli("share", "setup", "--fake-gpus", "4", "--no-service").stderr
    assert "Guard: cgroups." in kept
    off = cli("share", "setup", "--fake-gpus", "4", "--no-isolate", "--no-service").stderr
    assert "Guard: audit." in off and "Guard: audit." in cli("who").stdout
    leased.terminate()
    assert leased.wait(60) == 143


def test_setup_without_usable_cgroups_names_the_other_guard(
    share: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "_KINDS", ())
    with pytest.raises(MissingRequirement, match="`gpuyard audit` is the guard"):
        find_usable_kind()
    with pytest.raises(MissingRequirement):
        set_up(share, fake_gpus=4, isolate=True)
    assert json.loads(cli("who", "--json").stdout)["guard"] == "audit"


@needs_root
def test_a_lease_that_cannot_be_isolated_is_refused(
    isolated: str, share: Path, cli: Cli, who: Who
) -> None:
    config = share / "share.json"
    config.write_text(config.read_text().replace(isolated, "cgroup9"), encoding="utf-8")
    refused = cli("lease", "1", "--now", "--", "true", status=1).stderr
    assert "--no-isolate" in refused
    assert holders(who()) == {} and who()["queue"] == []


DELEGATED = """
import os, subprocess, sys
from pathlib import Path
from gpuyard.share.cgroup import V2, Cgroups
from gpuyard.share.processes import start_time
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
    start = start_time(process.pid)
    Cgroups(share).enclose("0000abcd", process.pid, V2, own=[], others=[], process_start=start)
    process.stdin.write(b"go\\n"); process.stdin.flush(); process.stdout.readline()
    print([line for line in Path(f"/proc/{process.pid}/cgroup").read_text().split() if line.startswith("0:")][0])
finally:
    process.kill(); process.wait()
    Cgroups(share).sweep(["0000abcd"])
    theirs.rmdir()
"""


@needs_root
def test_users_cannot_escape_through_a_delegated_group(share: Path) -> None:
    """Users could move processes out of a lease's group if that were below a group delegated to them."""
    with tempfile.TemporaryDirectory() as mount:
        Path(mount).chmod(0o755)
        inside = (sys.executable, "-c", DELEGATED, mount, str(share))
        # mounted separately, because other tests use the mounts of this machine
        output = subprocess.run(("unshare", "--mount", *inside), capture_output=True, text=True)  # noqa: PLW1510
    if "mount" in output.stderr.lower():
        pytest.skip("no cgroup v2 here")
    assert output.stdout == "0::/gpuyard-lease-0000abcd\n", output.stderr
