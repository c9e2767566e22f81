"""The registry of engines and the choice of one."""

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
    """An engine of another package that only keeps submitted jobs."""

    name = "listed"
    ok = True
    kept: list[Job] = []  # noqa: RUF012

    def available(self) -> base.Availability:
        return base.Availability(self.ok, "" if self.ok else "its list is missing")

    def plan(self, job: Job) -> base.Request:
        return _ListedRequest(job)

    def submit(self, request: base.Request) -> Handle:
        self.kept.append(request.job)
        return Handle(self.name, str(len(self.kept)))

    def status(self, handle: Handle) -> JobStatus:
        raise UserMistake(f"{handle} not found")

    def list(self, ended: int | None = None) -> Sequence[JobStatus]:
        return ()

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        yield ""

    def cancel(self, handle: Handle) -> None:
        return


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with engines, as pip would."""
    package = tmp_path / "their_engine-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: their-engine\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        f"[{base.ENTRY_POINT_GROUP}]\nlisted = {__name__}:ListEngine\nbroken = no_such_module:Engine\n"
        "wrong = pathlib:Path\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv(base.ENGINE_VARIABLE, raising=False)


def test_an_engine_of_another_package_is_found_and_used(installed: None) -> None:
    engine = base.choose_engine("listed")
    request = engine.plan(Job.create(JobSpec(command=("train",)), now=0.0))
    assert request.text() == "train"
    assert ListEngine.kept == []
    assert str(engine.submit(request)) == "listed://1"
    assert ListEngine.kept.pop() == request.job


def test_built_in_engines_come_first_and_cannot_be_replaced(installed: None) -> None:
    assert list(base.list_engines())[:3] == ["slurm", "local", "kubernetes"]
    assert set(base.list_engines()) >= {"listed", "broken", "wrong"}


def test_the_variable_chooses_an_engine(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(base.ENGINE_VARIABLE, "listed")
    assert base.choose_engine().name == "listed"


def test_the_error_tells_why_an_engine_cannot_be_used(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ListEngine, "ok", False)
    with pytest.raises(GpuyardError, match=r"listed .*its list is missing"):
        base.choose_engine("listed")
    with pytest.raises(GpuyardError, match=r"listed .*its list is missing"):
        base.choose_engine("listed", dry_run=True)
    monkeypatch.setattr(ListEngine, "plans_anywhere", True)
    assert base.choose_engine("listed", dry_run=True).name == "listed"
    with pytest.raises(UnknownName, match="did you mean 'listed'"):
        base.choose_engine("listd")
    with pytest.raises(GpuyardError, match=r"broken .*No module named"):
        base.choose_engine("broken")
    with pytest.raises(GpuyardError, match="wrong is not a gpuyard"):
        base.choose_engine("wrong")


def test_the_first_available_engine_is_chosen(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_BUILT_IN", {})
    assert base.choose_engine().name == "listed"
    monkeypatch.setattr(ListEngine, "ok", False)
    with pytest.raises(GpuyardError, match=r"no engine .*listed: its list is missing"):
        base.choose_engine()
