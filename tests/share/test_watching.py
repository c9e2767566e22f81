"""The output of `who`, `audit`, and `usage`, and leases of shells."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.share import shell_refusal
from gpuyard.report.answers.share.leases import who_answer
from gpuyard.report.terminal import print_answer
from gpuyard.share.broker import Broker
from gpuyard.share.caller import groups_of, user_name
from gpuyard.share.clock import Clock
from gpuyard.share.setup import set_up
from gpuyard.share.violations import find_violations
from tests.conftest import Cli
from tests.share.conftest import Start, holders

Who = Callable[[], dict[str, Any]]


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process without a lease."""
    process = subprocess.Popen(("sleep", "60"))
    yield process
    process.kill()
    process.wait()


def on_gpus(share: Path, **readings: Any) -> None:
    """Set the readings of test GPUs: `gpu3={...}`."""
    document = {name.removeprefix("gpu"): reading for name, reading in readings.items()}
    (share / "fake-readings.json").write_text(json.dumps(document))


def test_who_shows_utilization_and_na_if_unknown(share: Path, cli: Cli, who: Who) -> None:
    on_gpus(
        share, gpu0={"memory_used_bytes": 3_000_000_000, "utilization": 0.75, "power_watts": 201.4}
    )
    first, second = who()["gpus"][:2]
    assert (first["utilization"], first["temperature_c"]) == (0.75, None)
    assert second["utilization"] is None
    lines = cli("who", "--wide").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("│   0 ")]
    assert "3 GB" in line and re.search("75 ?%", line) and "N/A" in line and "201" in line


class Nvml:
    """A stand-in for nvidia-ml-py with two GPUs; the second does not report its power."""

    class NVMLError(Exception):
        """The error that NVML raises."""

    class Told:
        def __init__(self, **values: Any) -> None:
            vars(self).update(values)

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> str:
        return "Tesla V100-SXM2-16GB"

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Told:
        return self.Told(total=16_000_000_000, used=3_000_000_000)

    def nvmlDeviceGetUtilizationRates(self, index: int) -> Told:
        return self.Told(gpu=97 * index)

    def nvmlDeviceGetTemperature(self, _: int, __: int) -> int:
        return 61

    def nvmlDeviceGetPowerUsage(self, index: int) -> int:
        if index:
            raise self.NVMLError
        return 250_000

    def nvmlDeviceGetComputeRunningProcesses(self, index: int) -> list[Told]:
        return [self.Told(pid=self.pid, usedGpuMemory=2_000_000_000)] if index else []


def test_nvml_reports_utilization_and_processes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stranger: "subprocess.Popen[bytes]",
) -> None:
    from gpuyard.api.share import read_share
    from gpuyard.share.client import open_reader

    monkeypatch.setitem(sys.modules, "pynvml", Nvml(stranger.pid))
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    set_up(tmp_path / "share")
    client = open_reader()
    output = read_share(client)
    client.close()
    first, second = output["gpus"]
    assert (first["name"], first["memory_bytes"]) == ("Tesla V100-SXM2-16GB", 16_000_000_000)
    assert (first["memory_used_bytes"], first["temperature_c"]) == (3_000_000_000, 61)
    assert (first["utilization"], second["utilization"]) == (0, 0.97)
    assert (first["power_watts"], second["power_watts"]) == (250, None)
    (violation,) = output["violations"]
    assert (violation["kind"], violation["gpu"], violation["pid"]) == ("no-lease", 1, stranger.pid)
    (process,) = second["processes"]
    assert (process["pid"], process["memory_bytes"]) == (stranger.pid, 2_000_000_000)
    assert (process["user"], process["program"]) == (user_name(os.getuid()), "sleep")
    assert process["elapsed_seconds"] >= 0
    print_answer(who_answer(output))
    shown = "".join(capsys.readouterr().out.split())
    assert "2×TeslaV100-SXM2-16GB" in shown
    assert "3GBof16GB" in shown
    assert f"{stranger.pid}│{process['user']}│sleep│2GB" in shown


def test_who_watch_keeps_refreshing(start: Start) -> None:
    watching = start("who", "--watch", "--json")
    assert watching.stdout is not None
    documents = 0
    while documents < 2:  # two documents, one after the other
        documents += watching.stdout.readline().startswith('  "queue"')
    assert watching.poll() is None


def test_who_keeps_its_keys(share: Path, start: Start, who: Who) -> None:
    leased(start, "2", "--for", "1h", "--project", "speech")
    start("lease", "8", "--", "true")
    waits_for(lambda: who()["queue"])
    output = who()
    sections = {"gpus", "queue", "jobs", "withheld", "policy", "reservations"}
    assert set(output) == sections | {"violations", "guard", "conflict", "problems"}
    (withheld,) = output["withheld"]
    assert set(withheld) == {"gpus", "user", "for", "needs", "reason", "expected", "assumed"}
    assert (withheld["gpus"], withheld["needs"]) == (6, 8)
    assert {"id", "user", "pid", "since", "until", "command"} <= set(output["gpus"][0]["leases"][0])
    assert output["gpus"][0]["leases"][0]["until"] > output["gpus"][0]["leases"][0]["since"]


def test_a_process_without_a_lease_is_a_violation_and_audit_exits_1(
    share: Path, cli: Cli, stranger: "subprocess.Popen[bytes]"
) -> None:
    assert json.loads(cli("audit", "--json").stdout)["violations"] == []
    on_gpus(share, gpu3={"pids": [stranger.pid]})
    (violation,) = json.loads(cli("audit", "--json", status=1).stdout)["violations"]
    assert (violation["kind"], violation["gpu"], violation["pid"]) == ("no-lease", 3, stranger.pid)
    assert f"process {stranger.pid} of" in cli("who").stdout


def test_a_process_on_a_gpu_of_another_lease_is_a_violation(
    share: Path, cli: Cli, start: Start
) -> None:
    _, id_, pid = leased(start, "1")
    on_gpus(share, gpu0={"pids": [pid]})
    cli("audit")
    on_gpus(share, gpu0={"pids": [pid]}, gpu5={"pids": [pid]})
    (violation,) = json.loads(cli("audit", "--json", status=1).stdout)["violations"]
    assert (violation["kind"], violation["gpu"], violation["lease"]) == ("other-gpu", 5, id_)


def test_a_lease_that_is_idle_for_an_hour_is_a_violation(share: Path, start: Start) -> None:
    leased(start, "1")
    broker = Broker(share)
    now = Clock().boot()
    for utilization, is_idle in ((0.0, True), (0.5, False), (0.0, True)):
        broker.record_utilization({0: utilization})
        held = broker.state().held
        assert not find_violations(held, {}, now + 3000)
        violations = find_violations(held, {}, now + 3700)
        assert [violation.kind for violation in violations] == (["idle"] if is_idle else [])
    broker.close()


def test_audit_stops_violations_only_on_request_and_after_a_grace_period(
    share: Path, cli: Cli, stranger: "subprocess.Popen[bytes]"
) -> None:
    on_gpus(share, gpu3={"pids": [stranger.pid]})
    cli("audit", status=1)
    cli("audit", "--stop-after", "1h", status=1)
    assert stranger.poll() is None
    cli("audit", "--stop-after", "0s", "--warn", status=1)
    assert stranger.wait(60) == -15
    cli("audit")


def test_audit_warns_users_on_their_terminals(share: Path, cli: Cli) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sleep", ["sleep", "600"])  # noqa: S606
    try:
        waits_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        on_gpus(share, gpu3={"pids": [pid]})
        cli("audit", status=1)
        assert not select.select([terminal], [], [], 0)[0], "warned without --warn"
        done = json.loads(cli("audit", "--warn", "--json", status=1).stdout)
        assert (done["warned"], done["stopped"]) == ([pid], [])
        output = os.read(terminal, 4096).decode()
        assert f"gpuyard: process {pid} of " in output and "without a lease" in output
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_a_process_that_ignores_sigterm_is_killed(share: Path, cli: Cli) -> None:
    deaf = subprocess.Popen(
        ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.2; done"), stdout=subprocess.PIPE
    )
    assert deaf.stdout is not None and deaf.stdout.readline() == b"up\n"
    on_gpus(share, gpu3={"pids": [deaf.pid]})
    cli("audit", "--stop-after", "0s", status=1)
    assert deaf.wait(60) == -9
    deaf.stdout.close()


def test_an_idle_lease_is_released_only_on_request(
    share: Path, cli: Cli, start: Start, who: Who
) -> None:
    _, id_, _ = leased(start, "1")
    on_gpus(share, gpu0={"utilization": 0.0})
    cli("share", "policy", "--idle-grace", "1ms")
    who()  # notes that it is idle now
    output = json.loads(cli("audit", "--json", "--stop-after", "1h", status=1).stdout)
    assert [violation["kind"] for violation in output["violations"]] == ["idle"]
    assert holders(who()) == {0: [id_]}
    ended = cli("audit", "--stop-after", "0s", status=1).stdout
    assert f"Released lease {id_} of" in ended and holders(who()) == {}


def test_usage_counts_gpu_hours_by_user_group_and_project(
    share: Path, cli: Cli, start: Start
) -> None:
    set_up(share, fake_gpus=8, topology="nvlink-hybrid-cube-mesh")
    start("lease", "4", "--project", "speech", "--", "sleep", "1").wait(30)
    start("lease", "1", "--share", "0.5", "--", "sleep", "1").wait(30)
    output = json.loads(cli("usage", "--json").stdout)
    first, second = output["leases"]
    assert {"id", "user", "gpus", "start", "end", "ended"} <= set(first)
    assert first["ended"] == "finished" and len(first["gpus"]) == 4
    assert first["gpu_hours"] > 4 / 3600 and second["gpu_hours"] < first["gpu_hours"] / 4
    assert [row["name"] for row in output["by_project"]] == ["speech", None]
    (by_user,) = output["by_user"]
    assert by_user["gpu_hours"] == pytest.approx(first["gpu_hours"] + second["gpu_hours"])
    assert output["cloud_usd"] == pytest.approx(
        output["gpu_hours"] * output["cloud_usd_per_gpu_hour"]
    )
    assert first["elapsed_seconds"] >= 1
    groups = groups_of(os.getuid()) | {first["group"]}
    assert {row["name"] for row in output["by_group"]} == groups, "all groups of a user count"
    assert all(row["gpu_hours"] == by_user["gpu_hours"] for row in output["by_group"])
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
        assert shell.wait(60) == 0
    waits_for(lambda: not holders(who()))


def test_a_login_shell_has_the_lease_of_its_bashrc(share: Path, who: Who, tmp_path: Path) -> None:
    """A nested shell on the terminal leases no second time, and hanging up gives the GPUs back."""
    home = tmp_path / "home"
    home.mkdir()
    gpuyard = f'gpuyard() {{ {sys.executable} -m gpuyard "$@"; }}\n'
    (home / ".bashrc").write_text(gpuyard + bashrc_lines(), encoding="utf-8")
    (home / ".bash_profile").write_text(". ~/.bashrc\n", encoding="utf-8")
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(HOME=str(home), PS1="$ ", HISTFILE="")
        os.execvp("bash", ["bash", "--login", "-i"])  # noqa: S606
    os.write(terminal, b"bash -i -c 'echo got:$CUDA_VISIBLE_DEVICES:$GPUYARD_LEASE:end'\n")
    output = ""

    def answered() -> bool:
        nonlocal output
        if select.select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 4096).decode(errors="replace")
        return "got:0,1:" in output and ":end" in output.partition("got:0,1:")[2]

    waits_for(answered)
    id_ = output.partition("got:0,1:")[2].partition(":end")[0]
    assert holders(who()) == {0: [id_], 1: [id_]}
    os.close(terminal)  # the window is closed
    os.waitpid(pid, 0)
    waits_for(lambda: not holders(who()))


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_a_shell_without_a_lease_sees_no_gpu(share: Path, start: Start, shell: str) -> None:
    """Otherwise its programs would use all of them."""
    program = shutil.which(shell) or pytest.skip(f"{shell} is not here")
    leased(start, "8")
    line = f'eval "$({sys.executable} -m gpuyard lease 1 $1 --export)"; echo "$? $CUDA_VISIBLE_DEVICES"'
    environment = dict(os.environ)

    def ask(option: str) -> tuple[str, str]:
        result = subprocess.run(
            (program, "-c", line, shell, option),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout, result.stderr

    for option, status, sentence in (
        ("--now", 75, "cannot be leased now"),
        ("--gpu-ids=9", 2, "GPU 9"),
        ("--for=0s", 2, "more than 0 seconds"),
        ("--bad-option", 2, "--bad-option"),
        ("--for", 2, "no command"),  # it takes --export for the time
        ("--exprot", 2, "--export"),
    ):
        output, error_output = ask(option)
        assert output == f"{status} -1\n"
        assert sentence in error_output and "this shell has no lease" in error_output
    environment |= {"GPUYARD_LEASE": "0a1b2c3d", "CUDA_VISIBLE_DEVICES": "6"}
    assert ask("--now")[0] == "75 6\n"  # what it holds already stays
    assert ask("--bad-option")[0] == "2 6\n"


@pytest.mark.parametrize(
    "words", ["leese 1 --export", "--bad lease 1 --export", "lease 1 --exprot"]
)
def test_a_mistake_anywhere_in_the_line_hides_the_gpus_from_the_shell(
    share: Path, words: str
) -> None:
    line = f'eval "$({sys.executable} -m gpuyard {words})"; echo "$? $CUDA_VISIBLE_DEVICES"'
    result = subprocess.run(("sh", "-c", line), capture_output=True, text=True, check=True)
    assert result.stdout == "2 -1\n" and "this shell has no lease" in result.stderr


@pytest.mark.parametrize("gpuyard", ["", "gpuyard() { sh -c 'kill -9 $$'; }\n"])
def test_a_shell_sees_no_gpu_if_gpuyard_is_missing_or_was_killed(gpuyard: str) -> None:
    script = f'{gpuyard}{bashrc_lines()}echo "$CUDA_VISIBLE_DEVICES"'
    environment = {"PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        ("bash", "-c", script), env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "-1\n"


def bashrc_lines() -> str:
    """Return the lines that the documentation recommends for a `.bashrc`."""
    page = (Path(__file__).parents[2] / "docs/share.md").read_text(encoding="utf-8")
    (lines,) = (
        block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "--export" in block
    )
    return str(lines)


def test_a_bug_hides_the_gpus_from_the_shell(share: Path) -> None:
    """Any exception does, also one that nothing expects."""
    program = (
        "from gpuyard.share import shell_lease; shell_lease.export_lease = None; "
        "from gpuyard.cli.main import main; main()"
    )
    line = 'eval "$("$0" -c "$1" lease 1 --export)"; echo "$? $CUDA_VISIBLE_DEVICES"'
    words = ("sh", "-c", line, sys.executable, program)
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    assert result.stdout == "1 -1\n" and "Traceback" in result.stderr


def test_a_refused_shell_on_a_server_with_amd_gpus_sees_none_through_rocm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES take precedence over CUDA_VISIBLE_DEVICES."""
    monkeypatch.delenv("GPUYARD_LEASE", raising=False)
    monkeypatch.setattr(shell_refusal, "AMD_DRIVER", str(tmp_path))
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    script = f"{shell_refusal.format_refusal(2)}echo {' '.join(f'${name}' for name in names)}"
    result = subprocess.run(("sh", "-c", script), capture_output=True, text=True, check=True)
    assert result.stdout == "-1 -1 -1\n"


@pytest.mark.parametrize(
    ("words", "status"),
    [("lease 1 --bad", 2), ("predict --bad", 2), ("lease 1 -- nowhere --export", 127)],
)
def test_other_failed_commands_print_no_script(
    share: Path, cli: Cli, words: str, status: int
) -> None:
    assert cli(*words.split(), status=status).stdout == ""


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
