"""What `who`, `audit` and `usage` tell, and the lease of a shell."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.share.setup import set_up
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.clock import Clock
from gpuyard.share.watch.gpus import Reading
from gpuyard.share.watch.violations import find_violations
from tests.conftest import Cli
from tests.share.conftest import Start, holders

Who = Callable[[], dict[str, Any]]


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that leased nothing."""
    process = subprocess.Popen(("sleep", "60"))
    yield process
    process.kill()
    process.wait()


def on_gpus(share: Path, **readings: Any) -> None:
    """What test GPUs report: `gpu3={...}`."""
    document = {name.removeprefix("gpu"): reading for name, reading in readings.items()}
    (share / "fake-readings.json").write_text(json.dumps(document))


def test_who_shows_how_busy_gpus_are_and_na_where_nobody_knows(
    share: Path, cli: Cli, who: Who
) -> None:
    on_gpus(
        share, gpu0={"memory_used_bytes": 3_000_000_000, "utilisation": 0.75, "power_watts": 201.4}
    )
    first, second = who()["gpus"][:2]
    assert (first["utilisation"], first["temperature_c"]) == (0.75, None)
    assert second["utilisation"] is None
    lines = cli("who", "--wide").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("│   0 ")]
    assert "3 GB" in line and "75 %" in line and "N/A" in line and "201" in line


def test_who_keeps_its_keys(share: Path, start: Start, who: Who) -> None:
    leased(start, "2", "--for", "1h", "--project", "speech")
    start("lease", "8", "--", "true")
    waits_for(lambda: who()["queue"])
    said = who()
    assert set(said) == {"gpus", "queue", "reservations", "violations", "guard"}
    assert {"id", "user", "pid", "since", "until", "command"} <= set(said["gpus"][0]["leases"][0])
    assert said["gpus"][0]["leases"][0]["until"] > said["gpus"][0]["leases"][0]["since"]


def test_a_process_without_a_lease_is_a_violation_and_audit_exits_1(
    share: Path, cli: Cli, stranger: "subprocess.Popen[bytes]"
) -> None:
    assert "Everybody keeps to their leases." in cli("audit").stdout
    on_gpus(share, gpu3={"pids": [stranger.pid]})
    (found,) = json.loads(cli("audit", "--json", status=1).stdout)["violations"]
    assert (found["kind"], found["gpu"], found["pid"]) == ("no-lease", 3, stranger.pid)
    assert f"process {stranger.pid} of" in cli("who").stdout


def test_a_holder_on_anothers_gpu_is_a_violation_and_on_its_own_is_not(
    share: Path, cli: Cli, start: Start
) -> None:
    _, id_, pid = leased(start, "1")
    on_gpus(share, gpu0={"pids": [pid]})
    cli("audit")
    on_gpus(share, gpu0={"pids": [pid]}, gpu5={"pids": [pid]})
    (found,) = json.loads(cli("audit", "--json", status=1).stdout)["violations"]
    assert (found["kind"], found["gpu"], found["lease"]) == ("other-gpu", 5, id_)


def test_a_lease_that_is_idle_for_an_hour_is_a_violation(share: Path, start: Start) -> None:
    leased(start, "1")
    broker = Broker(share)
    now = Clock().boot()
    for utilisation, is_idle in ((0.0, True), (0.5, False), (0.0, True)):
        broker.record_utilisation({0: Reading(utilisation=utilisation)})
        held = broker.state().held
        assert not find_violations(held, {}, now + 3000)
        found = find_violations(held, {}, now + 3700)
        assert [violation.kind for violation in found] == (["idle"] if is_idle else [])
    broker.close()


def test_audit_stops_what_breaks_a_rule_only_when_asked_and_after_a_grace(
    share: Path, cli: Cli, stranger: "subprocess.Popen[bytes]"
) -> None:
    on_gpus(share, gpu3={"pids": [stranger.pid]})
    cli("audit", status=1)
    cli("audit", "--stop-after", "1h", status=1)
    assert stranger.poll() is None
    cli("audit", "--stop-after", "0s", "--warn", status=1)
    assert stranger.wait(5) == -15
    cli("audit")


def test_usage_counts_gpu_hours_by_user_group_and_project(
    share: Path, cli: Cli, start: Start
) -> None:
    set_up(share, fake_gpus=8, topology="nvlink-hybrid-cube-mesh")
    start("lease", "4", "--project", "speech", "--", "sleep", "1").wait(30)
    start("lease", "1", "--share", "0.5", "--", "sleep", "1").wait(30)
    said = json.loads(cli("usage", "--json").stdout)
    first, second = said["leases"]
    assert {"id", "user", "gpus", "start", "end", "ended"} <= set(first)
    assert first["ended"] == "finished" and len(first["gpus"]) == 4
    assert first["gpu_hours"] > 4 / 3600 and second["gpu_hours"] < first["gpu_hours"] / 4
    assert [row["name"] for row in said["by_project"]] == ["speech", None]
    (by_user,) = said["by_user"]
    assert by_user["gpu_hours"] == pytest.approx(first["gpu_hours"] + second["gpu_hours"])
    assert said["cloud_usd"] == pytest.approx(said["gpu_hours"] * said["cloud_usd_per_gpu_hour"])
    assert "GPU-hours" in cli("usage").stdout
    assert json.loads(cli("usage", "--json", "--since", "1ms").stdout)["leases"] == []


def test_the_lease_of_a_shell_lives_as_long_as_the_shell(
    share: Path, who: Who, tmp_path: Path
) -> None:
    gpuyard = f"{sys.executable} -m gpuyard"
    script = (
        f'eval "$({gpuyard} lease 2 --for 8h --export)"; echo "$CUDA_VISIBLE_DEVICES $GPUYARD_LEASE"; '
        "read line; exit 0"
    )
    with subprocess.Popen(
        ("bash", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None and shell.stdin is not None
        gpus, id_ = shell.stdout.readline().split()
        assert gpus == "0,1" and holders(who()) == {0: [id_], 1: [id_]}
        shell.stdin.close()
        assert shell.wait(10) == 0
    waits_for(lambda: not holders(who()))


def test_a_shell_that_gets_no_lease_is_told_so(share: Path, start: Start) -> None:
    leased(start, "8")
    refused = start("lease", "1", "--now", "--export")
    said, complained = refused.communicate(timeout=30)
    assert (said, refused.returncode) == ("", 75) and "can't be had now" in complained


def leased(start: Start, *arguments: str) -> tuple["subprocess.Popen[str]", str, int]:
    process = start("lease", *arguments, "--", "sh", "-c", "echo $GPUYARD_LEASE $$; exec sleep 60")
    assert process.stdout is not None
    id_, pid = process.stdout.readline().split()
    return process, id_, int(pid)


def waits_for(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
