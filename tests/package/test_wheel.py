"""The wheel carries its data and works far from the repository; `make soak` installs it into an empty venv."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from tests.command_line import ROOT, run_process, run_program


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place))
    done = run_program(*build, str(ROOT), cwd=place, environment=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = place.glob("gpuyard-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "unpacked")
    return place / "unpacked"


def test_it_has_every_file_of_the_package(unpacked: Path) -> None:
    def files(directory: Path) -> set[str]:
        paths = (path for path in directory.rglob("*") if path.is_file())
        return {path.relative_to(directory).as_posix() for path in paths if path.suffix != ".pyc"}

    data = {f"{place}/{name}" for place in ("examples", "schemas") for name in files(ROOT / place)}
    packed = files(unpacked / "gpuyard")
    assert packed - data == files(ROOT / "src" / "gpuyard")
    assert {"examples/resnet50.plan.yaml", "schemas/plan.schema.json"} <= packed
    (about,) = unpacked.glob("gpuyard-*.dist-info")
    assert "gpuyard = gpuyard.cli.main:main" in (about / "entry_points.txt").read_text()
    assert list((about / "licenses").rglob("LICENSE*"))


def test_it_predicts_prices_and_reports_without_the_repository(
    unpacked: Path, tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(unpacked)}
        done = run_process(*arguments, cwd=tmp_path, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    predicted = json.loads(
        run("predict", "resnet50", "--on", "dgx-h100", "--gpus", "1,8", "--json")
    )
    assert len(predicted["predictions"]) == 2
    assert "5,333 h" in run("cost", "--rent", "$1.50/h", "--buy", "$8000")
    (tmp_path / "p.study.yaml").write_text(
        "{name: p, workloads: [resnet50], measure: null, clusters: [{cluster: dgx-a100, gpus: [1, 8]}]}"
    )
    run("study", "p.study.yaml", "--output-dir", "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page) > 500_000  # the charts' code is inside
