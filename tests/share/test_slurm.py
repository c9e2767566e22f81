"""The way to Slurm: what is written starts a real one, and the same commands go through it."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.setup import set_up
from gpuyard.share.slurm import jobs
from gpuyard.share.slurm.accounts import Account, Accounts, SlurmUser, accounts_of, accounts_script
from gpuyard.share.slurm.export import slurm_files
from gpuyard.share.slurm.jobs import jobs_document, srun_command
from gpuyard.share.slurm.switch import use_slurm
from gpuyard.share.store.config import ShareConfig, SharedGpu, read_config
from gpuyard.share.store.lease import WHOLE, LeaseRequest
from gpuyard.share.turns.rules import Rules
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
        '"$0" -m gpuyard release $(squeue --noheader --format=%A | head -n 1); '
        'scancel --user="$(id -un)"; wait'
    )
    said = moved.slurm.run("sh", "-c", script, sys.executable)
    assert "status 75\n" in said.stdout, said.stderr
    assert "status 1\n" in said.stdout and "let them end" in said.stderr
    who = json.loads(said.stdout[said.stdout.index("{") : said.stdout.rindex("}") + 1])
    leases = [lease for gpu in who["gpus"] for lease in gpu["leases"]]
    assert [gpu["index"] for gpu in who["gpus"] if len(gpu["leases"]) == 1] == list(range(8))
    assert len({lease["id"] for lease in leases}) == 8
    assert {(lease["user"], lease["command"]) for lease in leases} == {("root", "sleep")}
    assert said.stderr.count("Slurm ends job") == 1

    # halves of GPUs: more than there are GPUs, and none with a whole one beside it
    halves = moved.slurm.run(
        "sh", "-c",
        'for _ in 1 2; do "$0" -m gpuyard lease 1 --share 0.5 -- '
        "sh -c 'echo GPU $CUDA_VISIBLE_DEVICES' & done; wait",
        sys.executable,
    )  # fmt: skip
    assert halves.stdout.count("GPU ") == 2, halves.stderr

    # what a user writes into a job is no other job, no other user and no other GPU
    forged = (
        'srun --gres=gpu:1 --job-name="x UserId=games(5) JobState=PENDING Nodes=a CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7)'
        ' MinCPUsNode=1" --comment="$1" sh -c "$2" & wait'
    )
    comment = "a\nJobId=9 JobName=y UserId=games(5) JobState=RUNNING TresPerNode=gres:gpu:1 GRES=gpu:1(IDX:0-99999999999)"
    look = f"{sys.executable} -m gpuyard who --json"
    said = moved.slurm.run("sh", "-c", forged, "sh", comment, look)
    leases = [lease for gpu in json.loads(said.stdout)["gpus"] for lease in gpu["leases"]]
    assert {lease["user"] for lease in leases} == {"root"}
    assert len(leases) == 1, "one GPU is held, and each lease is on its own"

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


def test_what_a_user_writes_into_a_job_is_no_other_job_and_no_other_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = "7|ann|RUNNING|gres:gpu:1|2026-01-01T00:00:00|2026-01-01T00:00:01|Unknown|UNLIMITED\n"
    name = (
        "x UserId=root(0) JobState=PENDING Nodes=a CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    )
    details = (
        f"JobId=7 JobName={name} UserId=ann(1) Account=y Nodes=a CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:2) QOS=z JOB_GRES=gpu:1"
        "   Nodes=a CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:1) MinCPUsNode=2 Command=y GRES=gpu:1(IDX:0-3) "
        "Comment=z\nJobId=8 JobName=y UserId=root(0) TresPerNode=gres:gpu:1 GRES=gpu:1(IDX:3-99999999999)"
    )

    def ask(*words: str) -> str:
        if words[0] != "squeue":
            return details
        return f"{name}\n" if "--format=%j" in words else listed

    monkeypatch.setattr(jobs, "_ask", ask)
    said = jobs_document(ShareConfig(tuple(SharedGpu(i, "a") for i in range(4))), {})
    leases = [lease for gpu in said["gpus"] for lease in gpu["leases"]]
    assert {(lease["id"], lease["user"]) for lease in leases} == {("7", "ann")}
    assert [gpu["index"] for gpu in said["gpus"] if gpu["leases"]] == [1]
    assert said["queue"] == []


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
    group = "vision; rm -rf /"
    known = Accounts(
        (Account(group, most_gpus=2),), (SlurmUser("ann", group),), Rules(quotas={group: 2})
    )
    script = accounts_script("gpuyard", known, ("ann", "cleo"))
    assert f"set_to account '{group}' cluster=gpuyard set GrpTRES=billing=200 " in script
    assert f"add user cleo cluster=gpuyard account='{group}'" in script
    assert "set_to user cleo set AdminLevel=Operator" in script
    gpus = (SharedGpu(0, "a"),)
    with_limits = slurm_files(ShareConfig(gpus), Path("/x"), known).texts["slurm.conf"]
    assert "\nAccountingStorageEnforce=associations,limits,qos" in with_limits
    assert (
        "\nAccountingStorageEnforce"
        not in slurm_files(ShareConfig(gpus), Path("/x")).texts["slurm.conf"]
    )


def test_each_rule_of_today_is_in_what_slurm_gets() -> None:
    rules = Rules(
        half_life_seconds=7 * 86400.0,
        fair_share="group",
        quotas={"students": 2, "first-years": 1},
        weekly_hours={"guests": 10.5},
        priorities={"staff": 10, "guests": -5},
    )
    files = slurm_files(ShareConfig((SharedGpu(0, "a"),)), Path("/x"), accounts_of([], rules)).texts
    for line in (
        "set_to account students cluster=gpuyard set GrpTRES=billing=200 GrpTRESMins=billing=-1 Fairshare=1",
        "set_to account first-years cluster=gpuyard set GrpTRES=billing=100 GrpTRESMins=billing=-1 Fairshare=1",
        "set_to account guests cluster=gpuyard set GrpTRES=billing=-1 GrpTRESMins=billing=63000 Fairshare=1",
        "set_to qos gpuyard-priority--5 set Priority=0",
        "set_to qos normal set Priority=1",
        "set_to qos gpuyard-priority-10 set Priority=2",
    ):
        assert f"{line}\n" in files["accounts.sh"]
    for line in (
        "PriorityDecayHalfLife=7-00:00:00",
        "PriorityUsageResetPeriod=WEEKLY",
        "PriorityWeightQOS=1000000000",
        "PriorityWeightFairshare=1000000",
    ):
        assert f"{line}\n" in files["slurm.conf"]


def test_a_member_of_several_groups_is_under_the_tightest_and_told_of_the_others(
    share: Path,
) -> None:
    from gpuyard.share.service.caller import this_process
    from gpuyard.share.store.broker import Broker

    broker = Broker(share)
    me = this_process()
    _, lock = broker.ask(me, LeaseRequest())
    rules = Rules(quotas={"wide": 4, "tight": 1}, priorities={"wide": 3, "tight": 2})
    in_both = frozenset({"wide", "tight", me.group})
    known = accounts_of(broker.history(), rules, lambda _: in_both)
    assert known.members == (SlurmUser(me.user, "tight", 3, ("wide",)),)
    script = accounts_script("gpuyard", known, ())
    assert f"# {me.user} is in wide too, whose limits Slurm does not hold them to" in script
    assert accounts_of(broker.history()).members == (SlurmUser(me.user, me.group),)
    os.close(lock)
    broker.close()


@MACHINE
@pytest.mark.soak
def test_a_real_slurm_with_its_database_keeps_the_same_limits(share: Path, cli: Cli) -> None:
    cli("share", "policy", "--quota", "games=2", "--weekly-hours", "games=100", "--priority",
        "games=5", "--half-life", "1d")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gpuyard-export-") as output:
        Path(output).chmod(0o755)
        cli("share", "export", "slurm", "--output", output)
        with slurm_of(Path(output) / "slurm.conf", database=True) as slurm:
            accounts = slurm.run(str(Path(output) / "accounts.sh"))
            assert (accounts.returncode, accounts.stderr) == (0, "")
            columns = "format=account,user,qos,defaultqos,grptres,grptresmins,fairshare"
            listed = slurm.run("sacctmgr", "--noheader", "--parsable2", "show", "assoc", columns)
            assert "games||normal||billing=200|billing=600000|parent\n" in listed.stdout
            qos = "gpuyard-priority-5"
            assert f"games|games|{qos}|{qos}|||1\n" in listed.stdout
            # a GPU and a hundred hundredths are two; who is over waits without keeping others waiting
            script = (
                "as_games() { setpriv --reuid=games --regid=games --clear-groups --reset-env env "
                'SLURM_CONF="$SLURM_CONF" srun --chdir=/ "$@" & }; '
                "until_seen() { until squeue --noheader --format='%T %r' | grep -c \"$2\" | grep -q "
                '"^$1$"; do sleep 0.2; done; }; '
                "as_games --gres=gpu:1 sleep 600; as_games --gres=shard:100 sleep 600; "
                "until_seen 2 RUNNING; as_games --gres=shard:1 true; "
                "until_seen 1 'PENDING AssocGrpBilling'; srun --gres=gpu:1 echo passed; "
                "scancel --user=games; wait"
            )
            said = slurm.run("bash", "-c", script)
            assert said.stdout == "passed\n", said.stderr


def test_what_is_asked_for_is_what_slurm_is_asked_for() -> None:
    config = ShareConfig((SharedGpu(0, "a", 24_000_000_000),))

    def words(request: LeaseRequest, wait_seconds: float | None = None) -> list[str]:
        return srun_command(request, ["/opt/train", "-x"], config, wait_seconds)

    assert "--gres=gpu:1" in words(LeaseRequest())
    assert "--time=2" in words(LeaseRequest(seconds=61))
    assert "--immediate" in words(LeaseRequest(waits=False))
    assert "--immediate=10" in words(LeaseRequest(), wait_seconds=9.5)
    assert "--comment=nmt" in words(LeaseRequest(project="nmt"))
    assert "--gres=shard:25" in words(LeaseRequest(memory_bytes=6_000_000_000))
    assert words(LeaseRequest())[-2:] == ["/opt/train", "-x"]
    with pytest.raises(UserMistake, match="chooses the GPUs itself"):
        words(LeaseRequest(gpus=(0,)))
    with pytest.raises(UserMistake, match="of one GPU"):
        words(LeaseRequest(count=2, parts=WHOLE // 2))
