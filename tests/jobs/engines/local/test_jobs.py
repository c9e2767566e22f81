"""Jobs on this machine, from `submit` to their end."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.engines.local.conftest import GPUS, Jobs, is_gone, until
from tests.jobs.test_job import NASTY

SHOW = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "text": os.environ.get("TEXT"), "cwd": os.getcwd()}))
"""


def test_a_job_is_a_lease_and_sees_its_gpus(jobs: Jobs) -> None:
    command = "echo $CUDA_VISIBLE_DEVICES $GPUYARD_GPUS $GPUYARD_LEASE; exit 0"
    handle = jobs.submit("--gpus", "2", "--project", "digits", "--", "sh", "-c", command)
    assert handle == "local://1"
    assert jobs.wait(handle) == 0
    assert re.fullmatch(r"0,1 2 [0-9a-f]{8}\n", jobs.logs(handle))
    usage = json.loads(jobs.cli("usage", "--json").stdout)
    assert [(lease["project"], lease["gpus"]) for lease in usage["leases"]] == [("digits", [0, 1])]
    status = jobs.status(handle)
    assert (status["handle"], status["state"], status["gpus"]) == (handle, "succeeded", 2)


def test_text_reaches_the_job_to_the_letter_and_no_shell(
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


def test_a_dry_run_prints_what_would_run_and_does_nothing(jobs: Jobs) -> None:
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


def test_a_shell_that_reads_the_dry_run_does_the_same(jobs: Jobs) -> None:
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


def test_options_go_before_what_the_file_says(jobs: Jobs) -> None:
    file = jobs.directory / "train.job.yaml"
    file.write_text("command: [sh, -c, 'echo $A $B']\nenv: {A: file, B: file}\ngpus: 3\ncwd: .\n")
    handle = jobs.submit(str(file), "--env", "B=line", "--gpus", "1")
    assert jobs.wait(handle) == 0
    assert (jobs.logs(handle), jobs.status(handle)["gpus"]) == ("file line\n", 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpus", "5", "--", "x"), "wants 5 GPUs or more; this machine has 4"),
        (("--gpus", "4", "--nodes", "2", "--", "x"), "has one machine, and the job wants 2"),
        (("--gpus", "lots", "--", "x"), "--gpus: expected a number of GPUs like 4"),
        (("--env", "A", "--", "x"), "--env: expected NAME=VALUE, got 'A'"),
        (("--deadline", "Fry 18:00", "--", "x"), "expected a time like 'Mon 18:00'"),
        (("--time-limit", "12", "--", "x"), "has no unit"),
        (("--after", "local://9", "--", "x"), "there is no job local://9"),
        (("--after", "slurm://c/9", "--", "x"), "can't wait for slurm://c/9, which is elsewhere"),
        (("--engine", "slum", "--", "x"), "did you mean 'slurm'"),
        (("--workload", "resnet5", "--", "x"), "did you mean 'resnet50'"),
        ((), "nothing to run"),
        (("--", ""), "the name of a program can't be empty"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_queued(
    jobs: Jobs, arguments: tuple[str, ...], sentence: str
) -> None:
    done = jobs.cli("submit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert json.loads(jobs.cli("queue", "--all", "--json").stdout)["jobs"] == []


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "wait", "retry"])
def test_a_job_that_is_not_there_is_a_mistake(jobs: Jobs, command: str) -> None:
    for handle in ("local://7", "local://007", "local://x"):
        done = jobs.cli(command, handle)
        assert done.returncode == 2
        assert f"there is no job {handle}" in done.stderr


def test_a_command_that_is_not_there_fails_and_says_so(jobs: Jobs) -> None:
    handle = jobs.submit("--", "no-such-program")
    assert jobs.wait(handle) == 1
    assert jobs.status(handle)["exit_status"] == 127
    assert "no-such-program can't be run" in jobs.logs(handle)
    nowhere = jobs.submit("--cwd", str(jobs.directory / "nowhere"), "--", "true")
    assert jobs.wait(nowhere) == 1
    assert "nowhere: No such file or directory" in jobs.status(nowhere)["reason"]


def test_a_cancelled_job_ends_with_all_that_it_has_started(jobs: Jobs) -> None:
    stubborn = "(trap '' TERM; echo $(exec sh -c 'echo $PPID') > pid; sleep 600) & sleep 600"
    handle = jobs.submit("--cwd", str(jobs.directory), "--", "bash", "-c", stubborn)
    waiting = jobs.submit("--gpus", "4", "--", "true")
    pid = until(lambda: (jobs.directory / "pid").exists() and (jobs.directory / "pid").read_text())
    assert jobs.cli("cancel", waiting, handle).returncode == 0
    assert jobs.wait(waiting, handle) == 1
    assert jobs.state(handle) == jobs.state(waiting) == "cancelled"
    assert is_gone(int(pid))
    assert json.loads(jobs.cli("who", "--json").stdout)["queue"] == []
    assert "is cancelled already" in jobs.cli("cancel", handle).stderr


def test_a_job_waits_its_turn_among_the_leases_of_others(jobs: Jobs) -> None:
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.store.lease import LeaseRequest

    desk = open_desk()
    held, lock = desk.ask(LeaseRequest(count=GPUS))
    ahead, lock_ahead = desk.ask(LeaseRequest(count=GPUS))
    handle = jobs.submit("--gpus", "1", "--", "true")
    behind = jobs.submit("--gpus", "1", "--", "true")
    until(lambda: "number 2 in the queue" in jobs.status(handle)["reason"], "a place in the queue")
    assert jobs.status(behind)["reason"] == ""  # one place is enough
    said = jobs.cli("queue", "explain", handle).stdout
    assert "It needs 1 GPU, and none of 4 is free." in said
    assert f"the end of lease {held.lease.id}" in said
    assert f"lease {ahead.lease.id}" in said
    os.close(lock)
    desk.finish(held.lease.id, childless=True)
    assert desk.claim(ahead.lease.id).lease.held  # whoever was there before them
    assert jobs.state(handle) == "queued"
    os.close(lock_ahead)
    desk.finish(ahead.lease.id, childless=True)
    desk.close()
    assert jobs.wait(handle, behind) == 0


def test_a_job_with_a_range_takes_what_is_there(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "3", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--gpus", "1..4", "--", "sh", "-c", "echo $GPUYARD_GPUS")
    assert jobs.wait(handle) == 0
    assert jobs.logs(handle) == "1\n"


def test_those_of_a_higher_priority_start_first(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    note = ("--cwd", str(jobs.directory), "--gpus", "4", "--", "sh", "-c")
    low = jobs.submit(*note, "echo low >> order")
    high = jobs.submit("--priority", "5", *note, "echo high >> order")
    jobs.cli("cancel", hold)
    assert jobs.wait(low, high) == 0
    assert (jobs.directory / "order").read_text() == "high\nlow\n"


def test_a_job_starts_after_those_that_it_comes_after_and_not_if_they_fail(jobs: Jobs) -> None:
    hold = jobs.submit(
        "--cwd", str(jobs.directory), "--", "sh", "-c", "until test -e go; do sleep .1; done"
    )
    after = jobs.submit("--after", hold, "--", "true")
    failing = jobs.submit("--", "false")
    never = jobs.submit("--after", failing, "--", "true")
    assert jobs.wait(never) == 1
    assert jobs.status(never)["reason"] == f"comes after {failing}, which is failed"
    assert jobs.status(after)["state"] == "queued"
    (jobs.directory / "go").touch()
    assert jobs.wait(after) == 0


def test_retry_submits_the_same_again(jobs: Jobs) -> None:
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
    assert "would run twice" in refused.stderr


def test_a_job_is_stopped_at_its_time_limit(jobs: Jobs) -> None:
    handle = jobs.submit("--time-limit", "1s", "--", "sleep", "600")
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["reason"]) == ("failed", "its time limit was reached")


def test_wait_says_that_the_time_is_over(jobs: Jobs) -> None:
    handle = jobs.submit("--", "sleep", "600")
    assert jobs.cli("wait", handle, "--timeout", "100 ms").returncode == 75


def test_logs_are_followed_to_the_end_of_the_job(jobs: Jobs) -> None:
    script = "for i in 1 2 3; do echo $i; sleep .3; done; printf 'last \\303\\274'"
    handle = jobs.submit("--", "sh", "-c", script)
    assert jobs.cli("logs", "-f", handle).stdout == "1\n2\n3\nlast ü"
    assert jobs.state(handle) == "succeeded"


def test_a_log_that_is_a_link_or_anothers_is_not_read(jobs: Jobs) -> None:
    handle = jobs.submit("--", "echo", "mine")
    assert jobs.wait(handle) == 0
    secret = jobs.directory / "secret"
    secret.write_text("secret")
    log = Path(jobs.status(handle)["logs"][0])
    log.unlink()
    log.symlink_to(secret)
    done = jobs.cli("logs", handle)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not read: it is a link" in done.stderr
    log.unlink()
    os.link(secret, log)
    assert "not a file of your own" in jobs.cli("logs", handle).stderr


def test_a_log_is_never_written_through_a_link(jobs: Jobs, tmp_path: Path) -> None:
    from gpuyard.jobs.log_files import open_log

    target = tmp_path / "target"
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        open_log(tmp_path / "log")
    assert not target.exists()


def test_a_job_submitted_on_a_lease_holds_nothing_of_it(
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


def test_the_policy_of_the_queue_is_shown_and_set(jobs: Jobs) -> None:
    assert json.loads(jobs.cli("queue", "policy", "--json").stdout)["policy"] == "fifo"
    done = jobs.cli("queue", "policy", "fifi")
    assert done.returncode == 2
    assert "did you mean 'fifo'" in done.stderr
    assert "uses fifo" in jobs.cli("queue", "policy", "fifo").stdout


def test_a_job_that_waits_is_explained(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--gpus", "2", "--deadline", "tomorrow 23:59", "--", "true")
    said = jobs.cli("queue", "explain", handle).stdout
    assert "It needs 2 GPUs, and none of 4 is free." in said
    assert f"the end of {hold} on 4 GPUs" in said
    assert f"Nobody knows how long {hold}, {handle} will take" in " ".join(said.split())
    document = json.loads(jobs.cli("queue", "explain", handle, "--json").stdout)
    assert (document["handle"], document["state"], document["gpus"]) == (handle, "queued", 2)
    assert document["start"]["expected"] < document["end"]["expected"] < document["deadline"]
    assert document["deadline_probability"] == 1
    jobs.cli("cancel", handle)
    done = jobs.cli("queue", "explain", handle)
    assert done.returncode == 2
    assert "is cancelled: it neither waits nor runs" in done.stderr


def test_the_store_and_what_jobs_print_is_for_their_user_only(jobs: Jobs) -> None:
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
    """By gpuyard.step(), and by a line that a program of any language may print."""
    (jobs.directory / "train.py").write_text(REPORTS)
    said = ("--workload", "resnet50", "--cwd", str(jobs.directory))
    handle = jobs.submit(*said, "--", sys.executable, "train.py")
    assert jobs.wait(handle) == 0

    def both() -> Any:  # one is stored after the other
        found = json.loads(jobs.cli("results", "list", "--kind", "job", "--json").stdout)
        return found if len(found) == 2 else None

    runs = until(both, "the measurements")
    assert {(run["handle"], run["workload"], run["gpus"]) for run in runs} == {
        (handle, "resnet50", 1)
    }
    assert sorted(run["steps"] for run in runs) == [40, 49]
    again = jobs.cli("results", "add", handle)
    assert (again.returncode, again.stdout) == (0, "Already in the store: 2 runs\n")
