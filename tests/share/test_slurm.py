"""The way to Slurm: what is written starts a real one, and the same commands go through it."""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.setup import set_up
from gpuyard.share.slurm.accounts import Account, accounts_script
from gpuyard.share.slurm.export import slurm_files
from gpuyard.share.slurm.jobs import srun_command
from gpuyard.share.slurm.switch import use_slurm
from gpuyard.share.store.config import ShareConfig, SharedGpu, read_config
from gpuyard.share.store.lease import WHOLE, Request
from tests.conftest import MACHINE, Cli
from tests.share.conftest import Start
from tests.slurm_cluster import SlurmCluster, slurm_of


@dataclass(frozen=True)
class Moved:
    """A share whose leases go through a Slurm that its own export configured."""

    slurm: SlurmCluster

    def gpuyard(self, *arguments: str) -> "CompletedProcess[str]":
        return self.slurm.run(sys.executable, "-m", "gpuyard", *arguments)


@pytest.fixture
def moved(share: Path, cli: Cli) -> Iterator[Moved]:
    with tempfile.TemporaryDirectory(prefix="gpuyard-export-") as output:
        Path(output).chmod(0o755)  # Slurm's own user reads them
        cli("share", "export", "slurm", "--output", output)
        with slurm_of(Path(output) / "slurm.conf") as slurm:
            yield from _used(slurm)


def _used(slurm: SlurmCluster) -> Iterator[Moved]:
    found = Moved(slurm)
    used = found.gpuyard("share", "use", "slurm")
    assert used.returncode == 0, used.stderr
    yield found


@MACHINE
def test_the_same_commands_go_through_a_slurm_that_the_export_configured(
    moved: Moved, share: Path
) -> None:
    ran = moved.gpuyard(
        "lease", "2", "--for", "1h", "--", "sh", "-c",
        'echo "$CUDA_VISIBLE_DEVICES|$GPUYARD_LEASE|$SLURM_JOB_ID|$1"; exit 7', "sh", "two words",
    )  # fmt: skip
    assert ran.returncode == 7, ran.stderr
    gpus, lease, job, word = ran.stdout.strip().split("|")
    assert (len(gpus.split(",")), lease, word) == (2, job, "two words")
    assert moved.gpuyard("lease", "1", "--", "no-such-program").returncode == 127

    # eight jobs at a time although there are fewer cores, and a ninth finds nothing
    script = (
        'for _ in 1 2 3 4 5 6 7 8; do "$0" -m gpuyard lease 1 -- sleep 60 & done; '
        "until [ $(squeue --noheader --states=RUNNING | wc -l) = 8 ]; do sleep 0.2; done; "
        '"$0" -m gpuyard lease 1 --now -- true; echo status $?; "$0" -m gpuyard who --json; '
        '"$0" -m gpuyard share use local; echo status $?; '
        'for job in $(squeue --noheader --format=%A); do "$0" -m gpuyard release $job; done; wait'
    )
    said = moved.slurm.run("sh", "-c", script, sys.executable)
    assert "status 75\n" in said.stdout, said.stderr
    assert "status 1\n" in said.stdout and "let them end" in said.stderr
    who = json.loads(said.stdout[said.stdout.index("{") : said.stdout.rindex("}") + 1])
    leases = [lease for gpu in who["gpus"] for lease in gpu["leases"]]
    assert [gpu["index"] for gpu in who["gpus"] if len(gpu["leases"]) == 1] == list(range(8))
    assert len({lease["id"] for lease in leases}) == 8
    assert {(lease["user"], lease["command"]) for lease in leases} == {("root", "sleep")}
    assert said.stderr.count("Slurm ends job") == 8

    # halves of GPUs: more than there are GPUs, and none with a whole one beside it
    halves = moved.slurm.run(
        "sh", "-c",
        'for _ in 1 2; do "$0" -m gpuyard lease 1 --share 0.5 -- '
        "sh -c 'echo GPU $CUDA_VISIBLE_DEVICES' & done; wait",
        sys.executable,
    )  # fmt: skip
    assert halves.stdout.count("GPU ") == 2, halves.stderr

    set_up(share, fake_gpus=8)
    assert read_config(share).scheduler == "slurm", "a new set-up gave the GPUs to two schedulers"
    reserved = moved.gpuyard("reserve", "1", "--from", "tomorrow 18:00", "--for", "1h")
    assert (reserved.returncode, "scontrol create reservation" in reserved.stderr) == (1, True), (
        reserved.stderr
    )
    back = moved.gpuyard("share", "use", "local")
    assert back.returncode == 0, back.stderr
    assert read_config(share).scheduler == "local"
    assert len(moved.gpuyard("lease", "1", "--", "printenv", "GPUYARD_LEASE").stdout.strip()) == 8


def test_a_lease_that_is_held_keeps_the_share_from_slurm(
    share: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.share.slurm.jobs.check_answers", lambda: None)
    held = start("lease", "1", "--", "sh", "-c", "echo; sleep 60")
    assert held.stdout is not None
    held.stdout.readline()
    with pytest.raises(GpuyardError, match="a second time"):
        use_slurm(share)
    assert read_config(share).scheduler == "local"


def test_without_slurm_the_share_stays_as_it_is(
    share: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    refused = cli("share", "use", "slurm", status=1)
    assert "srun is not on the PATH" in refused.stderr
    assert read_config(share).scheduler == "local"


def test_a_dry_run_prints_and_writes_nothing(share: Path, tmp_path: Path, cli: Cli) -> None:
    output = tmp_path / "out"
    said = cli("share", "export", "slurm", "--output", str(output), "--dry-run")
    assert "# gres.conf: the device of each GPU" in said.stdout
    assert not output.exists()


def test_each_file_says_first_what_it_is_and_real_gpus_are_closed_to_others() -> None:
    gpus = tuple(SharedGpu(i, "NVIDIA A100-SXM4-80GB") for i in range(2))
    files = slurm_files(ShareConfig(gpus, grace_seconds=9), Path("/etc/slurm")).texts
    for name, text in files.items():
        assert f"# {name}: " in "".join(text.splitlines(keepends=True)[:2])
    assert "Name=gpu Type=nvidia_a100-sxm4-80gb File=/dev/nvidia1\n" in files["gres.conf"]
    assert "Gres=gpu:nvidia_a100-sxm4-80gb:2,shard:200" in files["slurm.conf"]
    assert "TaskPlugin=task/cgroup" in files["slurm.conf"]
    assert "KillWait=9\n" in files["slurm.conf"]
    assert "ConstrainDevices=yes" in files["cgroup.conf"]


def test_limits_need_slurms_database_and_names_cant_be_commands() -> None:
    accounts = [Account("vision; rm -rf /", ("ann", "bob"), most_gpus=2)]
    script = accounts_script("gpuyard", accounts, ("ann", "cleo"), 8)
    assert "set_to account 'vision; rm -rf /' cluster=gpuyard set GrpTRES=gres/gpu=2" in script
    assert "set_to user cleo set AdminLevel=Operator" in script
    gpus = (SharedGpu(0, "a"),)
    with_limits = slurm_files(ShareConfig(gpus), Path("/x"), accounts).texts["slurm.conf"]
    assert "\nAccountingStorageEnforce=associations,limits,qos" in with_limits


def test_what_is_asked_for_is_what_slurm_is_asked_for() -> None:
    config = ShareConfig((SharedGpu(0, "a", 24_000_000_000),))

    def words(request: Request, wait_seconds: float | None = None) -> list[str]:
        return srun_command(request, ["/opt/train", "-x"], config, wait_seconds)

    assert "--gres=gpu:1" in words(Request())
    assert "--time=2" in words(Request(seconds=61))
    assert "--immediate" in words(Request(waits=False))
    assert "--immediate=10" in words(Request(), wait_seconds=9.5)
    assert "--comment=nmt" in words(Request(project="nmt"))
    assert "--gres=shard:25" in words(Request(memory_bytes=6_000_000_000))
    assert words(Request())[-2:] == ["/opt/train", "-x"]
    with pytest.raises(UserMistake, match="chooses the GPUs itself"):
        words(Request(gpus=(0,)))
    with pytest.raises(UserMistake, match="of one GPU"):
        words(Request(count=2, parts=WHOLE // 2))
