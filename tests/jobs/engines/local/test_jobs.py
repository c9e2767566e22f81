"""Jobs on this machine, from `submit` to their end."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.jobs.engines.local.conftest import GPUS, Jobs, is_gone, until
from tests.jobs.test_job import NASTY

SHOW = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "text": os.environ.get("TEXT"), "cwd": os.getcwd()}))
"""


def test_a_job_runs_on_a_lease_and_sees_its_gpus(jobs: Jobs) -> None:
    command = "echo $CUDA_VISIBLE_DEVICES $GPUYARD_GPUS $GPUYARD_LEASE; exit 0"
    handle = jobs.submit("--gpus", "2", "--project", "digits", "--", "sh", "-c", command)
    assert handle == "local://1"
    assert jobs.wait(handle) == 0
    assert re.fullmatch(r"0,1 2 [0-9a-f]{8}\n", jobs.logs(handle))
    usage = json.loads(jobs.cli("usage", "--json").stdout)
    assert [(lease["project"], lease["gpus"]) for lease in usage["leases"]] == [("digits", [0, 1])]
    status = jobs.status(handle)
    assert (status["handle"], status["state"], status["gpus"]) == (handle, "succeeded", 2)


def test_the_job_gets_every_text_unchanged_and_no_shell_reads_it(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = jobs.directory / NASTY[:60]
    odd.mkdir()
    (odd / "show.py").write_text(SHOW)
    handle = jobs.submit(
        *("--name", NASTY, "--env", f"TEXT={NASTY}", "--cwd", str(odd)),
        *("--", sys.executable, "show.py", NASTY, "", " two  words ", "-x"),
    )
    assert jobs.wait(handle) == 0
    shown = json.loads(jobs.logs(handle))
    assert shown["arguments"] == [NASTY, "", " two  words ", "-x"]
    assert shown["text"] == NASTY
    assert shown["cwd"] == str(odd)
    assert jobs.status(handle)["name"] == NASTY
    assert not list(jobs.directory.rglob("pwned"))
    assert "\n$(" not in jobs.cli("queue", "--all").stdout


def test_a_dry_run_prints_the_command_and_has_no_effect(jobs: Jobs) -> None:
    done = jobs.cli(
        "submit", "--dry-run", "--gpus", "2", "--time-limit", "1h", "--", "torchrun", "train.py"
    )
    last = done.stdout.splitlines()[-1]
    assert last == (
        "gpuyard lease 2 --for 3600.0s -- torchrun --nproc-per-node=2 --standalone train.py"
    )
    assert not jobs.paths.store.exists()
    document = json.loads(jobs.cli("submit", "--dry-run", "--json", "--", "train").stdout)
    assert document["engine"] == "local"
    assert document["job"]["spec"] == {"command": ["train"]}


def test_the_dry_run_is_a_script_that_does_the_same(jobs: Jobs) -> None:
    import subprocess

    (jobs.directory / "show.py").write_text(SHOW)
    arguments = (
        "--cwd",
        str(jobs.directory),
        "--env",
        f"TEXT={NASTY}",
        "--",
        sys.executable,
        "show.py",
        NASTY,
    )
    script = jobs.cli("submit", "--dry-run", *arguments).stdout
    script = script.replace("gpuyard lease", f"{sys.executable} -m gpuyard lease")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    handle = jobs.submit(*arguments)
    assert jobs.wait(handle) == 0
    assert jobs.logs(handle) == done.stdout


def test_options_override_the_job_file(jobs: Jobs) -> None:
    file = jobs.directory / "train.job.yaml"
    file.write_text("command: [sh, -c, 'echo $A $B']\nenv: {A: file, B: file}\ngpus: 3\ncwd: .\n")
    handle = jobs.submit(str(file), "--env", "B=line", "--gpus", "1")
    assert jobs.wait(handle) == 0
    assert (jobs.logs(handle), jobs.status(handle)["gpus"]) == ("file line\n", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "5", "--", "x"), "5 GPUs"),
        (("--gpus", "4", "--nodes", "2", "--", "x"), "--engine slurm"),
        (("--gpus", "lots", "--", "x"), "--gpus"),
        (("--env", "A", "--", "x"), "NAME=VALUE"),
        (("--deadline", "Fry 18:00", "--", "x"), "Mon 18:00"),
        (("--time-limit", "12", "--", "x"), "unit"),
        (("--after", "local://9", "--", "x"), "local://9"),
        (("--after", "slurm://c/9", "--", "x"), "slurm://c/9"),
        (("--engine", "slum", "--", "x"), "'slurm'"),
        (("--workload", "resnet5", "--", "x"), "'resnet50'"),
        ((), "gpuyard submit"),
        (("--", ""), "empty"),
        (("--", "no-such-program", "x"), "no-such-program"),
        (("--", "./no-such-program"), "./no-such-program"),
        (("--", "/etc/passwd"), "/etc/passwd"),
        (("--env", "PATH=/nowhere", "--", "true"), "'true'"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_queued(
    jobs: Jobs, arguments: tuple[str, ...], message: str
) -> None:
    done = jobs.cli("submit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert json.loads(jobs.cli("queue", "--all", "--json").stdout)["jobs"] == []


def test_a_job_larger_than_a_quota_is_refused(jobs: Jobs) -> None:
    """It would wait forever."""
    jobs.cli("share", "policy", "--max-gpus-per-user", "2")
    refused = jobs.cli("submit", "--gpus", "3", "--", "true")
    assert refused.returncode == 2 and "quota of 2 GPUs" in refused.stderr
    assert jobs.wait(jobs.submit("--gpus", "1..4", "--", "true")) == 0


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "wait", "retry"])
def test_an_unknown_handle_is_a_mistake(jobs: Jobs, command: str) -> None:
    for handle in ("local://7", "local://007", "local://x"):
        done = jobs.cli(command, handle)
        assert done.returncode == 2
        assert handle in done.stderr


def test_a_missing_command_or_directory_fails_the_job_and_is_named(jobs: Jobs) -> None:
    earlier = jobs.submit("--", "true")  # it could have created the program
    handle = jobs.submit("--after", earlier, "--", "no-such-program")
    assert jobs.wait(handle) == 1
    assert jobs.status(handle)["exit_status"] == 127
    assert "no-such-program" in jobs.logs(handle)
    nowhere = jobs.submit("--cwd", str(jobs.directory / "nowhere"), "--", "true")
    assert jobs.wait(nowhere) == 1
    assert "nowhere" in jobs.status(nowhere)["reason"]


def test_cancel_stops_a_job_with_all_processes_it_has_started(jobs: Jobs) -> None:
    stubborn = "(trap '' TERM; echo $(exec sh -c 'echo $PPID') > pid; sleep 600) & sleep 600"
    handle = jobs.submit("--cwd", str(jobs.directory), "--", "bash", "-c", stubborn)
    waiting = jobs.submit("--gpus", "4", "--", "true")
    pid = until(lambda: (jobs.directory / "pid").exists() and (jobs.directory / "pid").read_text())
    assert jobs.cli("cancel", waiting, handle).returncode == 0
    status = jobs.status(handle)
    assert status["canceling"] or status["state"] == "cancelled"
    assert jobs.wait(waiting, handle) == 1
    assert jobs.state(handle) == jobs.state(waiting) == "cancelled"
    assert not jobs.status(handle)["canceling"]
    assert is_gone(int(pid))
    assert json.loads(jobs.cli("who", "--json").stdout)["queue"] == []
    assert "cancelled" in jobs.cli("cancel", handle).stderr


def test_a_job_waits_in_the_lease_queue_behind_others(jobs: Jobs) -> None:
    from gpuyard.share.client import open_client
    from gpuyard.share.models import LeaseRequest

    desk = open_client()
    held, lock = desk.ask(LeaseRequest(count=GPUS))
    ahead, lock_ahead = desk.ask(LeaseRequest(count=GPUS))
    handle = jobs.submit("--gpus", "1", "--", "true")
    behind = jobs.submit("--gpus", "1", "--", "true")
    until(lambda: "number 2" in jobs.status(handle)["reason"], "a place in the queue")
    until(lambda: "number 3" in jobs.status(behind)["reason"], "a place behind it")
    explanation = jobs.cli("queue", "explain", handle).stdout
    assert f"lease {held.lease.id}" in explanation
    assert f"lease {ahead.lease.id}" in explanation
    os.close(lock)
    desk.finish(held.lease.id, childless=True)
    assert desk.claim(ahead.lease.id).lease.held  # it was there before the jobs
    assert jobs.state(handle) == "queued"
    os.close(lock_ahead)
    desk.finish(ahead.lease.id, childless=True)
    desk.close()
    assert jobs.wait(handle, behind) == 0


def test_a_job_with_a_range_starts_on_the_free_gpus(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "3", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--gpus", "1..4", "--", "sh", "-c", "echo $GPUYARD_GPUS")
    assert jobs.wait(handle) == 0
    assert jobs.logs(handle) == "1\n"


def test_jobs_of_a_higher_priority_start_first(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    note = ("--cwd", str(jobs.directory), "--gpus", "4", "--", "sh", "-c")
    low = jobs.submit(*note, "echo low >> order")
    high = jobs.submit("--priority", "5", *note, "echo high >> order")
    jobs.cli("cancel", hold)
    assert jobs.wait(low, high) == 0
    assert (jobs.directory / "order").read_text() == "high\nlow\n"


def test_a_job_starts_only_after_its_dependencies_have_succeeded(jobs: Jobs) -> None:
    hold = jobs.submit(
        "--cwd", str(jobs.directory), "--", "sh", "-c", "until test -e go; do sleep .1; done"
    )
    after = jobs.submit("--after", hold, "--", "true")
    failing = jobs.submit("--", "false")
    never = jobs.submit("--after", failing, "--", "true")
    assert jobs.wait(never) == 1
    assert (jobs.state(never), failing in jobs.status(never)["reason"]) == ("cancelled", True)
    assert jobs.status(after)["state"] == "queued"
    (jobs.directory / "go").touch()
    assert jobs.wait(after) == 0


def test_retry_submits_the_same_job_again(jobs: Jobs) -> None:
    handle = jobs.submit("--gpus", "2", "--", "sh", "-c", "echo $A")
    busy = jobs.submit("--", "sleep", "600")
    assert jobs.wait(handle) == 0
    done = jobs.cli("retry", handle)
    again = done.stdout.strip()
    assert (done.stdout, again) == ("local://3\n", "local://3")
    assert jobs.wait(again) == 0
    assert jobs.status(again)["uuid"] != jobs.status(handle)["uuid"]
    assert jobs.status(again)["command"] == jobs.status(handle)["command"]
    refused = jobs.cli("retry", busy)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert busy in refused.stderr


def test_a_job_is_stopped_at_its_time_limit(jobs: Jobs) -> None:
    handle = jobs.submit("--time-limit", "1s", "--", "sleep", "600")
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], "time limit" in status["reason"]) == ("failed", True)


def test_wait_has_its_own_exit_status_for_a_timeout(jobs: Jobs) -> None:
    handle = jobs.submit("--", "sleep", "600")
    assert jobs.cli("wait", handle, "--wait", "100 ms").returncode == 75


def test_logs_follows_a_job_to_its_end(jobs: Jobs) -> None:
    script = "for i in 1 2 3; do echo $i; sleep .3; done; printf 'last \\303\\274'"
    handle = jobs.submit("--", "sh", "-c", script)
    assert jobs.cli("logs", "-f", handle).stdout == "1\n2\n3\nlast ü"
    assert jobs.state(handle) == "succeeded"


def test_a_log_that_is_a_link_is_not_read(jobs: Jobs) -> None:
    handle = jobs.submit("--", "echo", "mine")
    assert jobs.wait(handle) == 0
    secret = jobs.directory / "secret"
    secret.write_text("secret")
    log = Path(jobs.status(handle)["logs"][0])
    log.unlink()
    log.symlink_to(secret)
    done = jobs.cli("logs", handle)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(log) in " ".join(done.stderr.split())
    log.unlink()
    os.link(secret, log)
    assert "secret" not in jobs.cli("logs", handle).stdout


def test_a_log_is_never_written_through_a_link(jobs: Jobs, tmp_path: Path) -> None:
    from gpuyard.jobs.log_files import open_log

    target = tmp_path / "target"
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        open_log(tmp_path / "log")
    assert not target.exists()


def test_a_job_submitted_within_a_lease_does_not_hold_that_lease(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (sys.executable, "-m", "gpuyard", "submit", "--", "sleep", "600")
    until_runs = '"$@"; until test -s "$RUNNER_LOCK"; do sleep 0.1; done'
    monkeypatch.setenv("RUNNER_LOCK", str(jobs.paths.runner_lock))
    done = jobs.cli("lease", "1", "--", "sh", "-c", until_runs, "sh", *command)
    handle = done.stdout.strip()
    until(lambda: jobs.state(handle) == "running")
    held = json.loads(jobs.cli("who", "--json").stdout)["gpus"]
    assert [lease["command"] for gpu in held for lease in gpu["leases"]] == [f"{handle} sleep"]


def test_the_policy_of_the_queue_can_be_shown_and_set(jobs: Jobs) -> None:
    assert json.loads(jobs.cli("queue", "policy", "--json").stdout)["policy"] == "fifo"
    done = jobs.cli("queue", "policy", "fifi")
    assert done.returncode == 2
    assert "'fifo'" in done.stderr
    assert "fifo:" in jobs.cli("queue", "policy", "fifo").stdout


def test_a_login_node_without_a_share_has_a_policy_for_the_users_own_jobs(cli: Cli) -> None:
    assert json.loads(cli("queue", "policy", "--json").stdout)["policy"] == "fifo"
    cli("queue", "policy", "min-time")
    assert json.loads(cli("queue", "policy", "--json").stdout)["policy"] == "min-time"
    refused = cli("queue", "policy", "max-jobs", "--every", "5min", status=2).stderr
    assert "queue rebalance --every" in refused


def test_a_share_that_is_set_up_later_says_that_its_policy_replaces_the_users_own(
    cli: Cli, home: Path
) -> None:
    cli("queue", "policy", "min-time")
    own = json.loads(cli("queue", "policy", "--json").stdout)
    assert (own["applies_to"], own["replaced_own_policy"]) == ("own Slurm jobs", None)
    assert "Slurm" in cli("queue", "policy").stdout
    cli("share", "setup", "--fake-gpus", "2", "--no-service")
    shared = json.loads(cli("queue", "policy", "--json").stdout)
    assert (shared["policy"], shared["applies_to"]) == ("fifo", "machine")
    assert shared["replaced_own_policy"] == "min-time"
    assert "min-time" in cli("queue", "policy").stdout.partition("Policies")[0]
    cli("queue", "policy", "min-time")
    assert json.loads(cli("queue", "policy", "--json").stdout)["replaced_own_policy"] is None


def test_queue_explain_describes_a_waiting_job(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--gpus", "2", "--deadline", "tomorrow 23:59", "--", "true")
    explanation = " ".join(jobs.cli("queue", "explain", handle).stdout.split())
    assert "2 GPUs" in explanation
    assert f"{hold} on 4 GPUs" in explanation
    assert f"{hold}, {handle} will take" in explanation
    document = json.loads(jobs.cli("queue", "explain", handle, "--json").stdout)
    assert (document["handle"], document["state"], document["gpus"]) == (handle, "queued", 2)
    assert document["start"]["expected"] < document["end"]["expected"] < document["deadline"]
    assert document["deadline_probability"] is None  # both lengths are assumed
    jobs.cli("cancel", handle)
    done = jobs.cli("queue", "explain", handle)
    assert done.returncode == 2
    assert f"{handle} is cancelled" in done.stderr


def test_only_their_user_can_read_the_store_and_the_output_of_jobs(jobs: Jobs) -> None:
    handle = jobs.submit("--", "echo", "mine")
    assert jobs.wait(handle) == 0
    assert jobs.paths.directory.stat().st_mode & 0o077 == 0
    for file in jobs.paths.directory.rglob("*"):
        assert file.stat().st_mode & 0o077 == 0, file


REPORTS = """
import time, gpuyard
for _ in range(60):
    time.sleep(0.005)
    gpuyard.step(samples=8)
print('gpuyard-steps: {"steps": 40, "samples": 400, "seconds": 2, "start": "by hand"}')
"""


def test_every_run_is_a_measurement(jobs: Jobs) -> None:
    """Reports come from gpuyard.step(), and from lines that a program in any language prints."""
    (jobs.directory / "train.py").write_text(REPORTS)
    options = ("--workload", "resnet50", "--cwd", str(jobs.directory))
    handle = jobs.submit(*options, "--", sys.executable, "train.py")
    assert jobs.wait(handle) == 0

    def read_both() -> Any:  # one is stored after the other
        done = jobs.cli("results", "list", "--kind", "job", "--json")
        runs = json.loads(done.stdout) if done.returncode == 0 else []
        return runs if len(runs) == 2 else None

    runs = until(read_both, "the measurements")
    assert {(run["handle"], run["workload"], run["gpus"]) for run in runs} == {
        (handle, "resnet50", 1)
    }
    assert sorted(run["steps"] for run in runs) == [40, 49]
    again = jobs.cli("results", "add", handle)
    assert (again.returncode, again.stdout) == (0, "Already in the store: 2 runs\n")
