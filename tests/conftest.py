"""Fixtures that all tests share: a separate home, access to the machine, and the command line."""

import contextlib
import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from gpuyard import lab
from gpuyard.catalog import models
from gpuyard.cpu import usable_cores
from gpuyard.errors import MissingRequirement
from gpuyard.measure.machine_lock import DIRECTORY_VARIABLE, NAME
from gpuyard.measure.training.records import MeasuredStep, Measurement, Provenance, Window
from gpuyard.predictor.calibration.document import (
    CalibratedLine,
    Calibration,
    CheckedErrors,
    HardwareCalibration,
)
from gpuyard.specs import Precision
from tests.command_line import Done, run_here, run_process

ROOT = Path(__file__).parents[1]

# no test asserts time, and CI repeats the same examples for a commit
settings.register_profile("gpuyard", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("soak", deadline=None, max_examples=2000)
settings.load_profile("gpuyard")
# let PyTorch's threads sleep while they wait; spinning would take the cores from other tests
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
Cli = Callable[..., Done]
MakeMeasurement = Callable[..., Measurement]
MakeCalibration = Callable[[str, Precision], Calibration]
needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs 2 cores")

# background jobs ignore SIGINT and nohup ignores SIGHUP; processes that tests start must not inherit that
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# one worker runs the tests that need the whole machine (labs, ranks), one at a time; others, those that share a
# copy of gpuyard for several users, or a Slurm cluster
MACHINE = pytest.mark.xdist_group("machine")
USERS = pytest.mark.xdist_group("users")
_SLURM = pytest.mark.xdist_group("slurm")
_MACHINE_FOLDERS = ("lab", "measure", "run", "soak", "study")
_NO_MACHINE = (  # tests in these folders that neither measure nor start ranks
    "lab/test_plan.py",
    "measure/acceptance/test_bisect.py",
    "measure/acceptance/test_judging.py",
    "measure/acceptance/test_pairs.py",
    "measure/collectives/test_expected.py",
    "measure/collectives/test_plan.py",
    "measure/export",
    "measure/job_runs",
    "measure/links/test_facts.py",
    "measure/test_recorded_store.py",
    "measure/test_store.py",
    "measure/test_stored_figures.py",
    "measure/training/test_resolve.py",
    "run/test_horovod_build.py",
    "run/test_places.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the collected tests from garbage collection, which took a tenth of a run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(ROOT / "tests")
        measures = path.parts[0] in _MACHINE_FOLDERS and not path.as_posix().startswith(_NO_MACHINE)
        fixtures = getattr(item, "fixturenames", ())
        if measures or "can_make_labs" in fixtures:
            item.add_marker(MACHINE)
        elif "slurm" in fixtures and item.get_closest_marker("xdist_group") is None:
            item.add_marker(_SLURM)
    # deployment tests run last, because their machine root is built meanwhile
    items.sort(key=lambda item: "can_deploy" in getattr(item, "fixturenames", ()))


# debootstrap takes minutes, so its result is kept beside the tools
LAB_ROOTS = Path(sys.prefix) / "lab-roots"
_MAKE_ROOT = "from gpuyard.lab.machine_root import make_root; make_root()"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the machine root of deployment tests in the background; the test that needs it waits."""
    _check_groups(session)
    first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    needs_root = any("can_deploy" in getattr(item, "fixturenames", ()) for item in session.items)
    can_build = os.geteuid() == 0 and shutil.which("debootstrap") is not None
    if not (first and needs_root and can_build) or session.config.option.collectonly:
        return
    builder = subprocess.Popen(
        ("nice", sys.executable, "-P", "-c", _MAKE_ROOT),
        env={**os.environ, "GPUYARD_ROOTS": str(LAB_ROOTS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # the test that needs it reports any error
        start_new_session=True,
    )

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(builder.pid, signal.SIGTERM)  # includes debootstrap
        builder.wait()

    session.config.add_cleanup(stop)


def _check_groups(session: pytest.Session) -> None:
    """Check that xdist adds groups to test ids; with pytest 9.2 it silently doesn't."""
    if session.config.getoption("loadgroup", default=False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in item.nodeid.rpartition("::")[2] for item in grouped), (
            "these versions of pytest and pytest-xdist don't keep groups together"
        )


@pytest.fixture(autouse=True)
def home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """Give each test a separate home, so that none reads or changes the user's store."""
    directory = tmp_path / "gpuyard-home"
    monkeypatch.setenv("GPUYARD_HOME", str(directory))
    monkeypatch.setenv(
        DIRECTORY_VARIABLE, str(directory)
    )  # other checkouts may run tests at the same time
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory / "share"))
    yield directory
    # a lease service that a command started stops when its socket is gone
    (directory / "share" / "lease.socket").unlink(missing_ok=True)
    if (directory / NAME).exists():
        group = request.node.get_closest_marker("xdist_group")
        assert group == MACHINE.mark, "a test that measures needs the mark MACHINE"


@pytest.fixture
def can_make_labs(home: Path) -> Iterator[None]:
    """Skip the test if this machine cannot create labs, and remove labs that a failing test leaves."""
    try:
        lab.check_can_make_labs()
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    # tests of another checkout count namespaces too; the kernel releases the lock with this process
    with (Path(tempfile.gettempdir()) / "gpuyard-tests-of-labs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        lab.remove_orphans()
        for remaining, _ in lab.labs():
            lab.down(remaining.plan.name)


@pytest.fixture
def make_measurement() -> MakeMeasurement:
    """Return a function that creates a plausible measurement with some fields changed."""

    def make(number: int = 1, **changed: object) -> Measurement:
        plain = Measurement(
            id=f"{number:012x}",
            key=f"key{number}",
            created_at="2026-01-02T03:04:05.678+00:00",
            workload='digits, "spoken"',
            spec={"name": "digits", "model": "m:f", "precision": "fp32"},
            workers=2,
            batch_per_worker=10,
            strategy="ddp",
            device="cpu",
            samples_per_second=100.125,
            low=90.0,
            high=110.25,
            step=MeasuredStep(
                step_seconds=0.2,
                compute_seconds=0.1,
                exposed_communication_seconds=0.075,
                input_seconds=0.025,
            ),
            all_reduce_bytes=48,
            all_reduce_seconds=None,
            windows=(Window(steps=3, seconds=0.6, input_seconds=0.075),),
            loss_first=2.5,
            loss_last=1.5,
            provenance=Provenance(
                gpuyard="0.1.0",
                torch="2.13.0",
                python="3.11.7",
                os="Debian",
                kernel="6.1",
                host="here",
                cpu_model="CPU",
                cores=2,
                memory_bytes=1000,
                gpus=(),
                backend="gloo",
                threads_per_worker=1,
                cores_by_worker=((0,), (1,)),
                data_source="synthetic",
                seed=0,
            ),
        )
        return plain.model_copy(update=changed)

    return make


@pytest.fixture
def make_calibration() -> MakeCalibration:
    """Return a function that creates one GPU's calibration for ResNet-50: 1 ms per step plus 1 ms per sample."""

    def make(gpu: str, precision: Precision) -> Calibration:
        line = CalibratedLine(
            workload="r", model="resnet50", precision=precision,
            gradient_bytes=models().get("resnet50").gradient_bytes, fixed_seconds=0.001,
            seconds_per_sample=0.001, fixed_basis="measured", runs=4, smallest_batch=32, largest_batch=64,
        )  # fmt: skip
        errors = CheckedErrors(
            configurations=2, mean_before=0.1, mean_after=0.1, median_before=0.1, median_after=0.1,
            mean_fitted=0.1,
        )  # fmt: skip
        hardware = HardwareCalibration(
            device="cuda", processor=gpu, count=8, cores_per_worker=None, hosts=("here",), runs=4,
            link_benches=0, first_run="", last_run="", torch=(), constants=(), lines=(line,), errors=errors,
        )  # fmt: skip
        return Calibration(created_at="", gpuyard="0.1.0", hardware=(hardware,))

    return make


class _Cli:
    """Run commands and check the exit status and that there is no traceback."""

    def __init__(self, run: Callable[..., Done]) -> None:
        self._run = run

    def __call__(
        self,
        *arguments: str,
        cwd: Path = ROOT,
        status: int = 0,
        environment: dict[str, str] | None = None,
    ) -> Done:
        finished = self._run(*arguments, cwd=cwd, environment={**os.environ, **(environment or {})})
        assert finished.returncode == status, (
            f"exit {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
        )
        assert "Traceback" not in finished.stderr
        return finished


@pytest.fixture
def cli() -> Cli:
    """Run `gpuyard ARGUMENTS` from the repository's root in the test process."""
    return _Cli(run_here)


@pytest.fixture
def gpuyard_process() -> Cli:
    """Run `gpuyard ARGUMENTS` from the repository's root in a new process."""
    return _Cli(run_process)
