"""GPUs that current software has left behind say so."""

import pytest

from gpuyard.catalog import gpus
from gpuyard.catalog.hardware import ends_of_life, find_end_of_life, find_ends_of_life


@pytest.mark.parametrize(
    ("gpu", "cuda_last"),
    [
        ("k80", "11.8"),
        ("m60", "12.9"),
        ("gtx-1080-ti", "12.9"),
        ("v100-sxm2-16gb", "12.9"),
        ("t4", None),
        ("rtx-2080-ti", None),
        ("mi300x", None),
        ("tpu-v5e", None),
    ],
)
def test_the_last_supported_cuda(gpu: str, cuda_last: str | None) -> None:
    end = find_end_of_life(gpus().get(gpu))
    assert (end.cuda_last if end else None) == cuda_last


def test_the_sentence_has_version_and_date() -> None:
    end = ends_of_life().get("Pascal")
    assert "CUDA 13.0 (August 2025)" in end.sentence
    assert "PyTorch 2.8 (August 2025)" in end.sentence
    assert end.source


def test_each_architecture_is_listed_once_and_the_oldest_first() -> None:
    old_gpus = [gpus().get(name) for name in ("v100-sxm2-16gb", "p40", "p4", "k80", "a40")]
    assert [end.id for end in find_ends_of_life(old_gpus)] == ["Kepler", "Pascal", "Volta"]


def test_every_architecture_at_its_end_has_gpus() -> None:
    architectures = {gpu.architecture for gpu in gpus()}
    assert set(ends_of_life().ids()) <= architectures
