"""The study that the report tests render."""

import pytest

from gpuyard.study.result import StudyResult
from tests.report.builder import full_study


@pytest.fixture(scope="session")
def result() -> StudyResult:
    return full_study()
