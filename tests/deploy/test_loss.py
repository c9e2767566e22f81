"""What a removal would destroy, as machines report it over a real ssh, and what the default expiry saves first."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.deploy.deployment import load_deployment
from gpuyard.deploy.expiry import Expiry, read_expiry, set_expiry
from gpuyard.deploy.loss import inspect_loss
from gpuyard.deploy.reaper import rescue
from gpuyard.deploy.state import StateDirectory
from gpuyard.errors import GpuyardError
from tests.command_line import ROOT
from tests.deploy.conftest import Up


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    process = subprocess.Popen(("sleep", "7654.32"), cwd=folder)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_shared_files_and_processes_that_work_there_are_found(up: Up) -> None:
    loaded = load_deployment(Path(up.file))
    head, other = loaded.state.hosts()
    (up.shared / "sub").mkdir()
    (up.shared / "sub" / "x").write_text("12345")
    (up.shared / "y").write_text("123")
    with working_in(up.shared / "sub"):
        loss = inspect_loss(
            loaded, (head, other), (head, other), shared=str(up.shared), people=["ada"]
        )
        assert (loss.files, loss.bytes) == (2, 8)
        assert {job.split(",")[0] for job in loss.jobs} == {
            f"sleep 7654.32 (root on {name}" for name in ("localhost", "two")
        }
        worker = inspect_loss(loaded, (other,), (head, other), shared=str(up.shared), people=[])
        assert (worker.files, worker.shared, len(worker.jobs)) == (0, None, 1)
        elsewhere = inspect_loss(
            loaded,
            (head,),
            (head, other),
            shared=str(up.shared),
            people=[],
            shared_is_on_head=False,
        )
        assert (elsewhere.files, elsewhere.shared, len(elsewhere.jobs)) == (0, None, 1)
    assert "2 files, 8 B" in loss.describe()
    gone = replace(other, name="gone", address="127.0.0.3", through_head=False)
    with loaded.state.hold():
        loaded.state.write_hosts((head, gone))
    loss = inspect_loss(loaded, (head, gone), (head, gone), shared=str(up.shared), people=[])
    assert loss.unreachable == ("gone",)
    assert "gone" in loss.describe()
    assert loss.jobs == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root creates mount namespaces")
def test_a_process_that_sees_the_shared_directory_at_another_path_is_found(
    up: Up, tmp_path: Path
) -> None:
    loaded = load_deployment(Path(up.file))
    hosts = loaded.state.hosts()
    (tmp_path / "data").mkdir()
    container = f'mount --bind "{up.shared}" data && cd data && echo ready && exec sleep 7654.33'
    command = ("unshare", "--mount", "sh", "-c", container)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            loss = inspect_loss(loaded, hosts, hosts, shared=str(up.shared), people=[])
        finally:
            process.kill()
    assert len(loss.jobs) == len(hosts)
    assert all("sleep 7654.33" in job for job in loss.jobs)


def test_the_default_expiry_saves_shared_files_and_waits_for_jobs(up: Up, home: Path) -> None:
    (up.shared / "x").write_text("precious")
    expiry = Expiry(time.time(), "lambda", asked=False, shared=str(up.shared))
    with working_in(up.shared), pytest.raises(GpuyardError, match=r"jobs run: sleep 7654\.32"):
        rescue(up.state, expiry)
    assert rescue(up.state, expiry) == home / "fetched" / "ours"
    assert (home / "fetched" / "ours" / "x").read_text() == "precious"
    hosts = up.state.hosts()
    with up.state.hold():
        up.state.write_hosts((hosts[0], replace(hosts[1], port=1)))
    with pytest.raises(GpuyardError, match="does not reach two"):
        rescue(up.state, expiry)


@pytest.mark.parametrize("asked", [True, False])
def test_only_a_ttl_in_the_file_counts_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    monkeypatch.setattr("gpuyard.deploy.expiry._start_reaper", lambda _: None)
    text = (ROOT / "examples/aws.deployment.yaml").read_text()
    lines = [line for line in text.splitlines() if "ttl:" not in line]
    if asked:
        lines.insert(lines.index("  kind: aws") + 1, "  ttl: 3 h")
    path = tmp_path / "x.deployment.yaml"
    path.write_text("\n".join(lines))
    state = StateDirectory("x")
    with state.hold():
        set_expiry(state, load_deployment(path).deployment)
    expiry = read_expiry(state)
    assert expiry is not None
    assert expiry.asked == asked
    assert expiry.shared == "/shared"
