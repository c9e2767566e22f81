"""Which engines there are, and which is taken."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.jobs.engines import base
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.specs.job import JobSpec


@dataclass(frozen=True)
class _ListedRequest(base.Request):
    def text(self) -> str:
        return " ".join(self.job.spec.command)


class ListEngine(base.Engine):
    """Keeps what it is given; as another package's would be found."""

    name = "listed"
    ok = True
    kept: list[Job] = []  # noqa: RUF012

    def available(self) -> base.Availability:
        return base.Availability(self.ok, "" if self.ok else "its list is away")

    def plan(self, job: Job) -> base.Request:
        return _ListedRequest(job)

    def submit(self, request: base.Request) -> Handle:
        self.kept.append(request.job)
        return Handle(self.name, str(len(self.kept)))

    def status(self, handle: Handle) -> JobStatus:
        raise UserMistake(f"there is no {handle}")

    def list(self) -> Sequence[JobStatus]:
        return ()

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        yield ""

    def cancel(self, handle: Handle) -> None:
        return


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with two engines, as pip leaves it."""
    package = tmp_path / "their_engine-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: their-engine\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        f"[{base.GROUP}]\nlisted = {__name__}:ListEngine\nbroken = no_such_module:Engine\n"
        "wrong = pathlib:Path\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv(base.VARIABLE, raising=False)


def test_an_engine_of_another_package_is_found_and_used(installed: None) -> None:
    found = base.choose_engine("listed")
    request = found.plan(Job.of(JobSpec(command=("train",)), now=0.0))
    assert request.text() == "train"
    assert ListEngine.kept == []
    assert str(found.submit(request)) == "listed://1"
    assert ListEngine.kept.pop() == request.job


def test_ours_come_first_and_nobody_replaces_them(installed: None) -> None:
    assert list(base.engine_names())[:3] == ["slurm", "local", "kubernetes"]
    assert set(base.engine_names()) >= {"listed", "broken", "wrong"}


def test_the_variable_names_one(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(base.VARIABLE, "listed")
    assert base.choose_engine().name == "listed"


def test_an_engine_that_cannot_be_used_says_why(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ListEngine, "ok", False)
    with pytest.raises(GpuyardError, match="listed can't be used here: its list is away"):
        base.choose_engine("listed")
    with pytest.raises(GpuyardError, match="listed can't be used here"):
        base.choose_engine("listed", dry_run=True)
    monkeypatch.setattr(ListEngine, "plans_anywhere", True)
    assert base.choose_engine("listed", dry_run=True).name == "listed"
    with pytest.raises(UnknownName, match="did you mean 'listed'"):
        base.choose_engine("listd")
    with pytest.raises(GpuyardError, match="broken can't be loaded: No module named"):
        base.choose_engine("broken")
    with pytest.raises(GpuyardError, match="wrong is not a gpuyard"):
        base.choose_engine("wrong")


def test_the_first_that_can_be_used_is_chosen(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_OURS", {})
    assert base.choose_engine().name == "listed"
    monkeypatch.setattr(ListEngine, "ok", False)
    with pytest.raises(
        GpuyardError, match="no engine can run jobs from here; listed: its list is away"
    ):
        base.choose_engine()
