"""A real training in a lab gets the right verdict: the faulty rank or machine, or none."""

import importlib.util
from types import ModuleType

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("can_make_labs")
SECONDS = 12.0


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "measure_verdicts.py"
    spec = importlib.util.spec_from_file_location("measure_verdicts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "fault",
    [
        "half-link",
        # how often the others are right is measured: docs/verdicts.md
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("none-4", "slow-input")),
    ],
)
def test_the_verdict_on_a_training_names_its_fault(script: ModuleType, fault: str) -> None:
    verdict = script.run(fault, SECONDS)
    assert verdict is not None
    assert script.is_right(fault, verdict), verdict.sentence
