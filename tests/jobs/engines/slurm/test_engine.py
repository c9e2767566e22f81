"""Jobs on a real Slurm, from submission to result."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import results_file
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.script.task_directory import NO_DIRECTORY
from gpuyard.jobs.job import Handle
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.store import ResultsStore
from gpuyard.reporting.reporter import MARKER
from tests.cli.test_quick_commands import find_heavy_imports
from tests.conftest import Cli
from tests.jobs.engines.slurm.conftest import Yard, until

ODD = (
    "a \"b\" 'c' `touch pwned` $(touch pwned) \\ \n #SBATCH --hold; touch pwned & é \x1b[31m "
    + "x" * 10_000
)
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.environ['KEPT'], os.getcwd()]))"
ALL_REDUCE = """\
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([2.0 ** dist.get_rank()])
dist.all_reduce(total)
sys.stdout.write(f"total {total.item()} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']}\\n")
dist.destroy_process_group()
"""


def test_any_text_arrives_unchanged_and_no_shell_parses_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", f"kept {ODD}")
    monkeypatch.setenv("SBATCH_HOLD", "1")  # sbatch would apply it to every job.
    cwd = yard.directory / ODD[:60]
    cwd.mkdir()
    handle = yard.submit(
        sys.executable, "-c", SHOW, ODD, "", name=ODD, env={"ODD": ODD}, cwd=str(cwd)
    )
    status = yard.wait(handle)
    assert status.state == "succeeded", yard.output(handle)
    assert json.loads(yard.output(handle)) == [[ODD, ""], ODD, f"kept {ODD}", str(cwd)]
    assert (status.name, status.gpus, status.exit_status) == (ODD, 1, 0)
    assert not [path for path in yard.directory.rglob("*pwned") if path.is_file()]


def test_sbatch_accepts_the_script_of_a_dry_run(yard: Yard) -> None:
    request = yard.plan("sh", "-c", "echo $GPUYARD_JOB > by-hand", gpus=2)
    script = yard.directory / "script"
    script.write_text(request.text())
    subprocess.run(["sbatch", str(script)], check=True, stdout=subprocess.DEVNULL)
    assert yard.read_file("by-hand") == f"{request.job.uuid}\n"
    assert not yard.engine.list(), "planning left a record"


def test_torchrun_runs_across_the_nodes_that_slurm_chose(yard: Yard) -> None:
    (yard.directory / "train.py").write_text(ALL_REDUCE)
    handle = yard.submit("torchrun", "train.py", gpus=2, nodes=2)
    status = yard.wait(handle)
    output = yard.output(handle)
    assert status.state == "succeeded", output
    assert (len(status.nodes), status.gpus) == (2, 2)
    for node in status.nodes:
        assert f"total 3.0 of 2 on {node}" in output


def test_a_failed_process_is_not_retried_and_a_killed_one_is(yard: Yard) -> None:
    failed = yard.submit("sh", "-c", "echo once; exit 1")
    killed = yard.submit(
        "sh", "-c", "echo run; test -e again && exit 0; touch again; kill -9 $$", gpus=2
    )
    status = yard.wait(failed)
    assert (status.state, status.exit_status, status.restarts) == ("failed", 1, 0)
    assert "status 1" in status.reason
    assert yard.output(failed) == "once\n"
    status = yard.wait(killed)
    assert (status.state, status.exit_status, status.restarts) == ("succeeded", 0, 1)
    assert [Path(log).read_text() for log in status.logs] == ["run\n", "run\n"]


def test_retries_limit_lost_and_failed_starts(yard: Yard) -> None:
    lost = yard.submit("sh", "-c", "kill -9 $$", retries={"lost": 1})
    fails = yard.submit("sh", "-c", "exit 3", retries={"failed": 2})
    status = yard.wait(lost)
    assert (status.state, status.exit_status, status.restarts) == ("lost", 137, 1)
    status = yard.wait(fails)
    assert (status.state, status.exit_status, status.restarts) == ("failed", 3, 2)


def test_children_of_a_killed_process_exit_before_the_next_start(yard: Yard) -> None:
    """torchrun's ranks survive when torchrun is killed."""
    script = "test -e again && { kill -0 $(cat left) && echo twice; exit 0; }; touch again; "
    handle = yard.submit("sh", "-c", script + "setsid sleep 300 & echo $! > left; kill -9 $$")
    status = yard.wait(handle)
    assert (status.state, status.restarts) == ("succeeded", 1)
    assert "twice" not in yard.output(handle)


def test_an_array_depends_on_another_job_and_each_task_has_its_own_log(yard: Yard) -> None:
    first = yard.submit("sh", "-c", "until test -e go; do sleep 0.1; done")
    handle = yard.submit(
        "sh", "-c", "echo task $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID",
        after=[str(first)], slurm={"array": "0,3-4%2"},
    )  # fmt: skip
    waiting = yard.until(handle, "queued")
    until(lambda: "depends on" in yard.status(handle).reason, lambda: str(waiting))
    (yard.directory / "go").touch()
    status = yard.wait(handle)
    assert (status.state, status.exit_status, status.restarts) == ("failed", 4, 0)
    assert yard.output(handle) == "task 0\ntask 3\ntask 4\n"
    for task, state in {"0": "succeeded", "3": "failed"}.items():
        own = Handle("slurm", f"{handle.id}_{task}")
        assert yard.status(own).state == state
        assert yard.output(own) == f"task {task}\n"
    with pytest.raises(UserMistake, match="follow one task"):
        next(yard.engine.logs(handle, follow=True))
    with pytest.raises(UserMistake, match="has no task 5"):
        yard.status(Handle("slurm", f"{handle.id}_5"))
    done = yard.plan("true", after=[str(first)])
    assert "--dependency" not in done.text(), "Slurm forgets succeeded jobs"
    with pytest.raises(UserMistake, match="is failed"):
        yard.plan("true", after=[str(handle)])


def test_one_task_of_an_array_can_be_retried_and_depended_on(yard: Yard, cli: Cli) -> None:
    """The other tasks may still run, and must not run twice."""
    wait = "test $SLURM_ARRAY_TASK_ID = 1 || until test -e go; do sleep 0.1; done"
    handle = yard.submit(
        "sh", "-c", f"echo task $SLURM_ARRAY_TASK_ID; {wait}; test -e go", slurm={"array": "0-2"}
    )
    task = Handle("slurm", f"{handle.id}_1")
    status = yard.wait(task)
    assert (status.state, status.handle) == ("failed", task)
    later = Handle("slurm", f"{handle.id}_2")
    assert f"--dependency=afterok:{handle.id.rpartition('/')[2]}_2\n" in (
        yard.plan("true", after=[str(later)]).text()
    )
    after = yard.submit("echo", "after one task", after=[str(later)])
    (yard.directory / "go").touch()
    again = Handle.parse(cli("retry", str(task)).stdout.strip())
    assert yard.wait(again).state == "succeeded"
    assert yard.output(again) == "task 1\n"
    assert yard.wait(after).state == "succeeded"
    assert (yard.wait(handle).state, yard.output(handle).count("task")) == ("failed", 3)


def test_a_job_is_canceled_by_its_uuid_and_stays_canceled(yard: Yard) -> None:
    running = yard.submit("sh", "-c", "echo started > started; exec sleep 300")
    waiting = yard.submit("true", after=[str(running)])
    yard.read_file("started")
    for handle in (waiting, running):
        yard.engine.cancel(handle)
        assert yard.wait(handle).state == "cancelled"
        yard.engine.cancel(handle)
    assert [status.state for status in yard.engine.list()] == ["cancelled", "cancelled"]


def test_a_reporting_job_is_shown_without_heavy_imports(yard: Yard) -> None:
    line = f'{MARKER}{{"steps": 10, "samples": 640, "seconds": 1, "number": 10, "total": 100}}'
    handle = yard.submit("sh", "-c", f"echo '{line}'; exec sleep 600")
    until(lambda: yard.status(handle).samples_per_second, lambda: "it reports")
    for question in (("queue",), ("status",), ("status", str(handle))):
        output, heavy = find_heavy_imports(*question)
        assert handle.id.rpartition("/")[2] in output
        assert heavy == []


def test_a_job_of_another_cluster_is_unknown_and_not_submitted_again(yard: Yard) -> None:
    handle = yard.submit("true")
    record = records.find(handle)[0]
    elsewhere = replace(
        record,
        document=record.job.resubmit(now=record.job.submitted + 1).document(),
        cluster="elsewhere",
        submissions=(records.Submission(1, 0.0),),
        handle_id="elsewhere/1",
    )
    elsewhere.directory.mkdir()
    elsewhere.write()
    status = yard.status(elsewhere.handle)
    assert status.state == "unknown"
    assert "elsewhere" in status.reason and "gpuyard" in status.reason
    yard.wait(handle)
    assert [listed.state for listed in yard.engine.list()] == ["succeeded", "unknown"]
    elsewhere.directory.rename(yard.directory / "elsewhere")


def test_an_impossible_request_is_an_error_and_leaves_no_record(yard: Yard) -> None:
    with pytest.raises(UserMistake, match=r"17 GPUs on 1 node: .* up to 4 GPUs each"):
        yard.plan("true", gpus=17)
    with pytest.raises(UserMistake, match="partition 'none'"):
        yard.plan("true", slurm={"partition": "none"})
    with pytest.raises(GpuyardError, match=r"sbatch: .*Invalid feature"):
        yard.submit("true", slurm={"constraint": "none"})
    with pytest.raises(UserMistake, match="slurm://gpuyard/999"):
        yard.status(Handle.parse("slurm://gpuyard/999"))
    with pytest.raises(UserMistake, match="local://1"):
        yard.plan("true", after=["local://1"])
    assert not yard.engine.list()
    broken = yard.submit("/no/such/program")
    status = yard.wait(broken)
    assert (status.state, status.exit_status) == ("failed", 127)
    assert "'/no/such/program'" in yard.output(broken)


def test_reported_steps_show_progress_and_become_a_measurement(yard: Yard) -> None:
    loop = (
        "import gpuyard, pathlib, time\n"
        "for number in range(1, 1000):\n"
        "    time.sleep(0.02)\n"
        "    gpuyard.step(samples=10, number=number, total=1000)\n"
        "    if pathlib.Path('go').exists(): break\n"
        # A program in another language prints its steps.
        'print(\'gpuyard-steps: {"steps": 40, "samples": 400, "seconds": 2, "start": "by hand"}\')\n'
    )
    handle = yard.submit(sys.executable, "-c", loop, workload="resnet50", gpus=2)
    until(lambda: yard.status(handle).samples_per_second, lambda: yard.output(handle), seconds=0.5)
    status = yard.status(handle)
    assert status.state == "running"
    assert status.done is not None and 0 < status.done < 1
    assert status.expected_end is not None
    (yard.directory / "go").touch()
    assert yard.wait(handle).state == "succeeded"
    run, printed = ResultsStore(results_file()).records(JobRun)
    assert (run.gpus, run.handle) == (2, str(handle))
    assert (printed.steps, printed.handle) == (40, str(handle))
    assert sum(not w.warmup for w in yard.engine.reports(handle)) > 1


def test_watch_names_the_slow_rank_of_a_job_on_two_nodes(yard: Yard, cli: Cli) -> None:
    loop = (
        "import os, time, gpuyard\n"
        "slow = os.environ['RANK'] == '1'\n"
        "while True:\n"
        "    time.sleep(0.06 if slow else 0.01)\n"
        "    with gpuyard.exchange():\n"
        "        time.sleep(0.001 if slow else 0.051)\n"  # the other rank waits
        "    gpuyard.step(samples=8)\n"
    )
    (yard.directory / "loop.py").write_text(loop, encoding="utf-8")
    handle = yard.submit("torchrun", "loop.py", nodes=2, gpus=2)
    until(lambda: "rank 1" in yard_status(cli, handle), lambda: yard.output(handle), seconds=0.5)
    first = cli("watch", str(handle)).stdout.splitlines()[0]
    assert first.startswith("Slow: rank 1 (")


def yard_status(cli: Cli, handle: Handle) -> str:
    return str(json.loads(cli("status", str(handle), "--json").stdout)["verdict"])


def test_following_logs_stops_when_the_job_finishes(yard: Yard) -> None:
    handle = yard.submit("sh", "-c", "echo first; until test -e go; do sleep 0.1; done; echo last")
    pieces = yard.engine.logs(handle, follow=True)
    assert next(pieces) == "first\n"
    (yard.directory / "go").touch()
    assert "".join(pieces) == "last\n"


def test_a_link_in_place_of_a_log_is_not_followed(yard: Yard, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious\n")
    request = yard.plan("sh", "-c", "echo mine")
    request.directory.mkdir(parents=True, mode=0o700)
    previous = int(
        subprocess.run(
            ["sbatch", "--parsable", "--output=/dev/null", "--wrap=true"],
            check=True,
            capture_output=True,
        ).stdout
    )
    for number in range(previous, previous + 3):
        (request.directory / f"{number}-0.log").symlink_to(precious)
    handle = yard.engine.submit(request)
    status = yard.wait(handle)
    assert precious.read_text() == "precious\n"
    assert status.state == "succeeded", status
    assert [Path(log).name for log in status.logs] == [f"{previous + 1}-1.log"]
    Path(status.logs[0]).unlink()
    Path(status.logs[0]).symlink_to(precious)
    with pytest.raises(GpuyardError, match=rf"{previous + 1}-1\.log.* link"):
        yard.output(handle)


def test_a_job_does_not_run_if_others_can_write_to_its_directory(yard: Yard) -> None:
    request = yard.plan("touch", "ran")
    request.directory.mkdir(parents=True)
    os.chmod(request.directory, 0o777)  # noqa: PTH101, S103
    script = yard.directory / "script"
    script.write_text(request.text())
    done = subprocess.run(["sbatch", "--wait", str(script)], check=False, stdout=subprocess.DEVNULL)
    assert done.returncode == NO_DIRECTORY
    assert not (yard.directory / "ran").exists()


def test_the_curve_sizes_a_range_and_explain_shows_why(yard: Yard) -> None:
    hold = yard.submit("sleep", "600", gpus=16, nodes=4)
    yard.until(hold, "running")
    keys = {
        "gpus": "1..16",
        "workload": "resnet50",
        "samples": 100_000_000,
        "deadline": "tomorrow 23:59",
    }
    slow = {"cluster": "4x4xt4@1G"}
    handle = yard.submit("torchrun", "train.py", slurm=slow, **keys)
    explanation = yard.engine.explain(handle)
    assert explanation is not None
    assert explanation.gpus == 4
    text = " ".join(explanation.sentences)
    assert "4 GPUs of 1..16, chosen by fifo from the job's curve (predicted): " in text
    script = records.find(handle)[0].script.read_text()
    assert "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n" in script
    running = yard.engine.explain(hold)
    assert running is not None
    assert "16 GPUs of node" in running.reasons[0]
    yard.engine.cancel(hold)
    yard.engine.cancel(handle)
    yard.wait(handle)
    with pytest.raises(UserMistake, match="is cancelled"):
        yard.engine.explain(handle)
