"""The move to Slurm: the exported files start a real Slurm, and the same commands use it."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.broker import Broker
from gpuyard.share.config import Rules, ShareConfig, SharedGpu, read_config
from gpuyard.share.models import WHOLE, LeaseRequest
from gpuyard.share.setup import set_up
from gpuyard.share.slurm.accounts import (
    Accounts,
    SlurmUser,
    collect_accounts,
    render_accounts_script,
)
from gpuyard.share.slurm.export import render_slurm_files
from gpuyard.share.slurm.jobs import build_srun_command, describe_jobs
from gpuyard.share.slurm.switch import use_slurm
from gpuyard.slurm import gpu_jobs
from gpuyard.slurm.gpu_jobs import list_gpu_jobs
from tests.conftest import MACHINE, Cli
from tests.share.conftest import Start, acting_as
from tests.slurm_cluster import SlurmCluster, slurm_from_configuration


@dataclass(frozen=True)
class SlurmShare:
    """A share that leases through a Slurm with its exported configuration."""

    slurm: SlurmCluster

    def gpuyard(self, *arguments: str) -> "CompletedProcess[str]":
        return self.slurm.run(sys.executable, "-m", "gpuyard", *arguments)


@pytest.fixture
def slurm_share(share: Path, cli: Cli) -> Iterator[SlurmShare]:
    with tempfile.TemporaryDirectory(prefix="gpuyard-export-") as output:
        Path(output).chmod(0o755)  # The user `slurm` reads the files.
        cli("share", "export", "slurm", "--output-dir", output)
        with slurm_from_configuration(Path(output) / "slurm.conf") as slurm:
            slurm_share = SlurmShare(slurm)
            early = slurm_share.gpuyard("lease", "1", "--", "true")
            assert (early.returncode, "share use slurm" in early.stderr) == (1, True), early.stderr
            switched = slurm_share.gpuyard("share", "use", "slurm")
            assert switched.returncode == 0, switched.stderr
            yield slurm_share


@MACHINE
def test_the_same_commands_work_with_a_slurm_that_the_export_configured(
    slurm_share: SlurmShare, share: Path
) -> None:
    ran = slurm_share.gpuyard(
        "lease", "2", "--for", "1h", "--", "sh", "-c",
        'echo "$CUDA_VISIBLE_DEVICES|$GPUYARD_LEASE|$SLURM_JOB_ID|$1"; exit 7', "sh", "two words",
    )  # fmt: skip
    assert ran.returncode == 7, ran.stderr
    gpus, lease, job, word = ran.stdout.strip().split("|")
    assert (len(gpus.split(",")), lease, word) == (2, job, "two words")
    assert slurm_share.gpuyard("lease", "1", "--", "no-such-program").returncode == 127

    # Eight jobs run at once despite fewer cores, and a ninth finds no free GPU.
    script = (
        'for _ in 1 2 3 4 5 6 7 8; do "$0" -m gpuyard lease 1 -- sleep 60 & done; '
        "until [ $(squeue --noheader --states=RUNNING | wc -l) = 8 ]; do sleep 0.2; done; "
        '"$0" -m gpuyard lease 1 --now -- true; echo status $?; "$0" -m gpuyard who --json; '
        '"$0" -m gpuyard share use local; echo status $?; '
        '"$0" -m gpuyard release $(squeue --noheader --format=%A | head -n 1); '
        'scancel --user="$(id -un)"; wait'
    )
    done = slurm_share.slurm.run("sh", "-c", script, sys.executable)
    assert "status 75\n" in done.stdout, done.stderr
    assert "status 1\n" in done.stdout and "scancel" in done.stderr
    who = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    leases = [lease for gpu in who["gpus"] for lease in gpu["leases"]]
    assert [gpu["index"] for gpu in who["gpus"] if len(gpu["leases"]) == 1] == list(range(8))
    assert len({lease["id"] for lease in leases}) == 8
    assert {(lease["user"], lease["command"]) for lease in leases} == {("root", "sleep")}
    assert len(re.findall(r"Slurm .*\bjob \d+", done.stderr)) == 1

    # Two leases share one GPU.
    halves = slurm_share.slurm.run(
        "sh", "-c",
        'for _ in 1 2; do "$0" -m gpuyard lease 1 --share 0.5 -- '
        "sh -c 'echo GPU $CUDA_VISIBLE_DEVICES' & done; wait",
        sys.executable,
    )  # fmt: skip
    assert halves.stdout.count("GPU ") == 2, halves.stderr

    # Text in a job's name or comment cannot pose as another job, user, or GPU.
    forged = (
        'srun --gres=gpu:1 --job-name="x UserId=games(5) JobState=PENDING Nodes=a CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7)'
        ' MinCPUsNode=1" --comment="$1" sh -c "$2" & wait'
    )
    comment = "a\nJobId=9 JobName=y UserId=games(5) JobState=RUNNING TresPerNode=gres:gpu:1 GRES=gpu:1(IDX:0-99999999999)"
    look = f"{sys.executable} -m gpuyard who --json"
    done = slurm_share.slurm.run("sh", "-c", forged, "sh", comment, look)
    leases = [lease for gpu in json.loads(done.stdout)["gpus"] for lease in gpu["leases"]]
    assert {lease["user"] for lease in leases} == {"root"}
    assert len(leases) == 1, "one job holds one GPU"

    set_up(share, fake_gpus=8)
    assert read_config(share).scheduler == "slurm", "another setup gave the GPUs to two schedulers"
    reserved = slurm_share.gpuyard("reserve", "1", "--start", "tomorrow 18:00", "--for", "1h")
    assert (reserved.returncode, "scontrol create reservation" in reserved.stderr) == (1, True), (
        reserved.stderr
    )
    back = slurm_share.gpuyard("share", "use", "local")
    assert back.returncode == 0, back.stderr
    assert read_config(share).scheduler == "local"
    check_leases_are_the_only_owner(slurm_share)
    check_a_second_owner_is_found(slurm_share)
    again = slurm_share.gpuyard("share", "use", "slurm")
    assert again.returncode == 0, again.stderr
    assert slurm_share.gpuyard("lease", "1", "--now", "--", "true").returncode == 0
    check_a_silent_owner_is_not_overlooked(slurm_share, share)


def check_leases_are_the_only_owner(slurm_share: SlurmShare) -> None:
    """After the hand-over Slurm still runs, but neither `submit` nor `srun` gets GPUs from it."""
    leased = slurm_share.gpuyard("lease", "1", "--", "printenv", "GPUYARD_LEASE")
    assert len(leased.stdout.strip()) == 8, leased.stderr
    refused = slurm_share.slurm.run("srun", "--immediate=1", "--gres=gpu:1", "true")
    assert refused.returncode != 0
    submit = ("submit", "--dry-run")
    planned = slurm_share.gpuyard(*submit, "--", "true")
    assert (planned.returncode, "#SBATCH" in planned.stdout) == (0, False), planned.stderr
    named = slurm_share.gpuyard("submit", "--engine", "slurm", "--", "true")
    assert (named.returncode, "share use slurm" in named.stderr) == (1, True), named.stderr


def check_a_second_owner_is_found(slurm_share: SlurmShare) -> None:
    """An admin resumes Slurm's node by hand, and Slurm starts a job there."""
    script = (
        'scontrol update "NodeName=$(sinfo --noheader --format=%n)" State=RESUME; '
        'srun --gres=gpu:1 sh -c \'"$0" -m gpuyard who --json; unset SLURM_JOB_ID; '
        '"$0" -m gpuyard who --json; "$0" -m gpuyard lease 1 -- true\' "$0"'
    )
    done = slurm_share.slurm.run("sh", "-c", script, sys.executable)
    assert "share use local" in done.stderr, done.stderr
    own, others = (json.loads(line) for line in split_documents(done.stdout))
    assert own["conflict"] is None, "a job may lease what it has"
    assert "share use local" in others["conflict"]
    assert [gpu["index"] for gpu in others["gpus"] if gpu["leases"]] == [0]


def check_a_silent_owner_is_not_overlooked(slurm_share: SlurmShare, share: Path) -> None:
    """Slurm's controller is down: its jobs still run, unless the hand-over has drained the node."""
    drained = slurm_share.gpuyard("share", "use", "local")
    assert drained.returncode == 0, drained.stderr
    slurm_share.slurm.find_daemon("slurmctld").kill()
    leased = slurm_share.gpuyard("lease", "1", "--", "true")
    assert leased.returncode == 0, leased.stderr
    replace(read_config(share), slurm_drained=False).write(
        share
    )  # as if the share were set up beside Slurm
    refused = slurm_share.gpuyard("lease", "1", "--", "true")
    assert (refused.returncode, "scontrol ping" in refused.stderr) == (1, True), refused.stderr
    assert "scontrol ping" in json.loads(slurm_share.gpuyard("who", "--json").stdout)["conflict"]


def split_documents(text: str) -> list[str]:
    decoder, documents = json.JSONDecoder(), []
    while text := text.strip():
        _, end = decoder.raw_decode(text)
        documents.append(text[:end])
        text = text[end:]
    return documents


@pytest.mark.parametrize("version", ["22.05", "24.05"])
def test_jobs_are_read_from_the_json_of_each_version(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "x UserId=root(0) JobState=PENDING GRES=gpu:1(IDX:0)"
    running = {
        "job_id": 7, "user_name": "ann", "name": name, "comment": "nmt\n8|root|RUNNING",
        "job_state": "RUNNING", "tres_per_node": "gres:gpu:2", "gres_detail": ["gpu:a100:2(IDX:0-1)"],
        "submit_time": 1767225600, "start_time": 1767225601, "end_time": 1798761601, "time_limit": None,
    }  # fmt: skip
    waiting = {**running, "job_id": 9, "job_state": "PENDING", "gres_detail": [], "tres_per_node": "gres:shard:50"}  # fmt: skip
    others = [{**running, "job_id": 6, "job_state": "COMPLETED"}, {**running, "job_id": 5, "gres_detail": [], "tres_per_node": ""}]  # fmt: skip
    jobs: list[dict[str, Any]] = [waiting, running, *others]
    if version == "24.05":
        for job in jobs:
            job["job_state"] = [job["job_state"]]
            for key in ("submit_time", "start_time", "end_time", "time_limit"):
                infinite = job[key] is None
                job[key] = {"set": not infinite, "infinite": infinite, "number": job[key] or 0}
    monkeypatch.setattr(gpu_jobs, "run", lambda *_: json.dumps({"jobs": jobs, "errors": []}))
    answer = describe_jobs(ShareConfig(tuple(SharedGpu(i, "a") for i in range(4))), {})
    leases = [lease for gpu in answer["gpus"] for lease in gpu["leases"]]
    assert [gpu["index"] for gpu in answer["gpus"] if gpu["leases"]] == [0, 1]
    assert all(lease.pop("elapsed_seconds") > 0 for lease in leases)
    assert leases[0] == leases[1] == {
        "id": "7", "user": "ann", "pid": None, "command": name, "share": 1.0, "since": "2026-01-01T00:00:01+00:00",
        "until": None, "project": running["comment"],
    }  # fmt: skip
    (queued,) = answer["queue"]
    assert (queued["id"], queued["share"], queued["since"]) == (
        "9",
        0.5,
        "2026-01-01T00:00:00+00:00",
    )


@pytest.mark.parametrize("output", ["", "[]", '{"jobs": [{}]}', '{"jobs": [{"job_id": "x"}]}'])
def test_output_that_is_no_list_of_jobs_is_an_error(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_jobs, "run", lambda *_: output)
    with pytest.raises(GpuyardError, match="squeue --json"):
        list_gpu_jobs()


def test_a_share_with_a_held_lease_cannot_switch_to_slurm(
    share: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.share.slurm.switch.check_slurm", lambda: None)
    held = start("lease", "1", "--", "sh", "-c", "echo; sleep 60")
    assert held.stdout is not None
    held.stdout.readline()
    with pytest.raises(GpuyardError, match="gpuyard who"):
        use_slurm(share)
    assert read_config(share).scheduler == "local"


def test_a_request_that_the_hand_over_overtakes_gets_no_gpu(share: Path) -> None:
    """Its broker read the configuration before; the decision is made inside the transaction."""
    broker = Broker(share)
    replace(read_config(share), scheduler="slurm").write(share)
    with pytest.raises(GpuyardError, match="Slurm hands out"):
        broker.ask(LeaseRequest())
    assert not broker.state().held
    broker.close()


def test_a_change_of_the_policy_or_another_setup_does_not_undo_the_hand_over(share: Path) -> None:
    broker = Broker(share)
    replace(read_config(share), scheduler="slurm").write(share)
    broker.set_rules(Rules(priorities={"staff": 1}))
    broker.close()
    set_up(share, fake_gpus=8)
    config = read_config(share)
    assert (config.scheduler, config.rules.priorities) == ("slurm", {"staff": 1})


def test_without_slurm_the_share_does_not_change(
    share: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    failure = cli("share", "use", "slurm", status=1)
    assert "srun" in failure.stderr and "slurm-client" in failure.stderr
    assert read_config(share).scheduler == "local"


def test_a_dry_run_prints_and_writes_nothing(share: Path, tmp_path: Path, cli: Cli) -> None:
    output = tmp_path / "out"
    printed = cli("share", "export", "slurm", "--output-dir", str(output), "--dry-run")
    assert "# gres.conf: " in printed.stdout
    assert not output.exists()


def test_each_file_starts_with_its_name_and_jobs_can_open_only_their_own_gpus() -> None:
    gpus = tuple(SharedGpu(i, "NVIDIA A100-SXM4-80GB") for i in range(2))
    files = render_slurm_files(ShareConfig(gpus, grace_seconds=9), Path("/etc/slurm")).texts
    for name, text in files.items():
        assert f"# {name}: " in "".join(text.splitlines(keepends=True)[:2])
    assert "Name=gpu Type=nvidia_a100-sxm4-80gb File=/dev/nvidia1\n" in files["gres.conf"]
    assert "Gres=gpu:nvidia_a100-sxm4-80gb:2,shard:200" in files["slurm.conf"]
    assert "TaskPlugin=task/cgroup" in files["slurm.conf"]
    assert "KillWait=9\n" in files["slurm.conf"]
    assert "ConstrainDevices=yes" in files["cgroup.conf"]


def test_limits_need_slurms_database_and_names_cannot_be_commands() -> None:
    group = "vision; rm -rf /"
    accounts = Accounts((group,), (SlurmUser("ann", group),), Rules(quotas={group: 2}))
    script = render_accounts_script("gpuyard", accounts, ("ann", "cleo"))
    assert f"set_to account '{group}' cluster=gpuyard set GrpTRES=billing=200 " in script
    assert f"add user cleo cluster=gpuyard account='{group}'" in script
    assert "set_to user cleo set AdminLevel=Operator" in script
    gpus = (SharedGpu(0, "a"),)
    with_limits = render_slurm_files(ShareConfig(gpus), Path("/x"), accounts).texts["slurm.conf"]
    assert "\nAccountingStorageEnforce=associations,limits,qos" in with_limits
    assert (
        "\nAccountingStorageEnforce"
        not in render_slurm_files(ShareConfig(gpus), Path("/x")).texts["slurm.conf"]
    )


def test_each_rule_of_the_share_is_exported() -> None:
    rules = Rules(
        half_life_seconds=7 * 86400.0,
        fair_share="group",
        quotas={"students": 2, "first-years": 1},
        weekly_hours={"guests": 10.5},
        priorities={"staff": 10, "guests": -5},
        max_gpus_per_user=3,
        max_lease_seconds=36 * 3600.0,
    )
    config = ShareConfig((SharedGpu(0, "a"),))
    files = render_slurm_files(config, Path("/x"), collect_accounts([], rules)).texts
    for line in (
        "set_to account students cluster=gpuyard set GrpTRES=billing=200 GrpTRESMins=billing=-1 Fairshare=1",
        "set_to account first-years cluster=gpuyard set GrpTRES=billing=100 GrpTRESMins=billing=-1 Fairshare=1",
        "set_to account guests cluster=gpuyard set GrpTRES=billing=-1 GrpTRESMins=billing=63000 Fairshare=1",
        "set_to qos gpuyard-priority--5 set Priority=0",
        "set_to qos normal set Priority=1",
        "set_to qos gpuyard-priority-10 set Priority=2",
        "set_to qos normal set MaxTRESPerUser=billing=300",
    ):
        assert f"{line}\n" in files["accounts.sh"]
    for line in (
        "PriorityDecayHalfLife=7-00:00:00",
        "PriorityUsageResetPeriod=WEEKLY",
        "PriorityWeightQOS=1000000000",
        "PriorityWeightFairshare=1000000",
    ):
        assert f"{line}\n" in files["slurm.conf"]
    assert " MaxTime=1-12:00:00 " in files["slurm.conf"]


def test_a_member_of_several_groups_gets_the_strictest_and_a_note_about_the_others(
    share: Path,
) -> None:
    from gpuyard.share.caller import this_process

    broker = Broker(share)
    me = this_process()
    _, lock = acting_as(broker, me).ask(LeaseRequest())
    rules = Rules(quotas={"wide": 4, "tight": 1}, priorities={"wide": 3, "tight": 2})
    in_both = frozenset({"wide", "tight", me.group})
    accounts = collect_accounts(broker.history_page(), rules, lambda _: in_both)
    assert accounts.members == (SlurmUser(me.user, "tight", 3, ("wide",)),)
    script = render_accounts_script("gpuyard", accounts, ())
    assert f"# {me.user} is also in wide" in script
    assert collect_accounts(broker.history_page()).members == (SlurmUser(me.user, me.group),)
    os.close(lock)
    broker.close()


@MACHINE
@pytest.mark.soak
def test_a_real_slurm_with_its_database_keeps_the_same_limits(share: Path, cli: Cli) -> None:
    cli("share", "policy", "--quota", "games=2", "--weekly-hours", "games=100", "--group-priority",
        "games=5", "--half-life", "1d")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gpuyard-export-") as output:
        Path(output).chmod(0o755)
        cli("share", "export", "slurm", "--output-dir", output)
        with slurm_from_configuration(Path(output) / "slurm.conf", database=True) as slurm:
            accounts = slurm.run(str(Path(output) / "accounts.sh"))
            assert (accounts.returncode, accounts.stderr) == (0, "")
            columns = "format=account,user,qos,defaultqos,grptres,grptresmins,fairshare"
            listed = slurm.run("sacctmgr", "--noheader", "--parsable2", "show", "assoc", columns)
            assert "games||normal||billing=200|billing=600000|parent\n" in listed.stdout
            qos = "gpuyard-priority-5"
            assert f"games|games|{qos}|{qos}|||1\n" in listed.stdout
            # One GPU and 100 shards are two GPUs; a job over the limit waits without blocking others.
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
            done = slurm.run("bash", "-c", script)
            assert done.stdout == "passed\n", done.stderr


def test_a_lease_request_becomes_an_srun_command() -> None:
    config = ShareConfig((SharedGpu(0, "a", 24_000_000_000),))

    def words(request: LeaseRequest, wait_seconds: float | None = None) -> list[str]:
        return build_srun_command(request, ["/opt/train", "-x"], config, wait_seconds)

    assert "--gres=gpu:1" in words(LeaseRequest())
    assert "--time=2" in words(LeaseRequest(seconds=61))
    assert "--immediate" in words(LeaseRequest(waits=False))
    assert "--immediate=10" in words(LeaseRequest(), wait_seconds=9.5)
    assert "--comment=nmt" in words(LeaseRequest(project="nmt"))
    assert "--gres=shard:25" in words(LeaseRequest(memory_bytes=6_000_000_000))
    assert words(LeaseRequest())[-2:] == ["/opt/train", "-x"]
    with pytest.raises(UserMistake, match="--gpu-ids"):
        words(LeaseRequest(gpus=(0,)))
    with pytest.raises(UserMistake, match="request 1 GPU"):
        words(LeaseRequest(count=2, parts=WHOLE // 2))
