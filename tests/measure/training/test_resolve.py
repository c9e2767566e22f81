"""Building a task and its batches from a workload spec, and the errors on the way."""

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.specs import Dataset, Tensor, TrainingTarget, Workload
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.samples import build_batches, load_samples

Build = Callable[..., Workload]


def test_catalog_name_and_factory_give_tasks() -> None:
    with torch.device("meta"):
        task = build_task(Workload(name="w", model="spoken-digits-linear"))
    assert sum(p.numel() for p in task.model.parameters()) == 12_102_220
    with pytest.raises(UserMistake, match="did you mean 'resnet50'"):
        build_task(Workload(name="w", model="resnet5"))


def test_bare_module_gets_batches_from_the_spec(tiny: Build) -> None:
    task = build_task(tiny("bare"))
    (inputs,), target = task.batch(5)
    assert inputs.shape == (5, 16)
    assert inputs.dtype == torch.float32
    assert target.shape == (5,)
    assert task.loss(task.model(inputs), target).ndim == 0


def test_integer_input_and_tensor_target(tiny: Build) -> None:
    spec = tiny(
        "embedding",
        input=Tensor(shape=(2,), dtype="int64", below=7),
        target=TrainingTarget(shape=(2,)),
    )
    task = build_task(spec)
    (inputs,), target = task.batch(50)
    assert inputs.dtype == torch.int64
    assert 0 <= int(inputs.min()) <= int(inputs.max()) < 7
    assert target.shape == (50, 2)
    expected = ((task.model(inputs) - target) ** 2).mean()
    assert torch.allclose(task.loss(task.model(inputs), target), expected)


@pytest.mark.parametrize(
    ("model", "fragment"),
    [
        ("no_such_module_here:f", "module 'no_such_module_here'"),
        ("tiny_models.inner:f", "module 'tiny_models.inner'"),
        ("tiny_models:clasifier", "tiny_models has no 'clasifier'; did you mean 'classifier'"),
        ("tiny_models:number", r"returned a int; .*torch.nn.Module"),
        ("tiny_models:NOT_CALLABLE", "is a int, not a factory"),
        ("tiny_models:needs_argument", "must be callable without arguments"),
        ("tiny_models:", "write it as module:factory"),
    ],
)
def test_wrong_factories_are_errors(tiny: Build, model: str, fragment: str) -> None:
    with pytest.raises(UserMistake, match=fragment):
        build_task(tiny().model_copy(update={"model": model}))


def test_a_bare_module_without_input_is_an_error_with_an_example(tiny: Build) -> None:
    with pytest.raises(UserMistake, match=r"needs 'input' and 'target', like: input: \{shape"):
        build_task(tiny("bare", input=None, target=None))
    with pytest.raises(UserMistake, match="needs 'target'"):
        build_task(tiny("bare", target=None))
    with pytest.raises(UserMistake, match="needs 'below'"):
        build_task(tiny("bare", input=Tensor(shape=(2,), dtype="int64")))


def test_module_in_the_current_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_me.py").write_text("import not_installed_thing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = Workload(name="w", model="beside_me:f")
    with pytest.raises(UserMistake, match="it needs not_installed_thing"):
        build_task(spec)


def test_missing_torch_is_an_error(monkeypatch: pytest.MonkeyPatch, tiny: Build) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingRequirement, match=r"gpuyard\[train\]"):
        build_task(tiny())


def test_each_epoch_is_split_among_the_ranks(tiny: Build) -> None:
    spec = tiny("bare", dataset=Dataset(samples=12))
    task = build_task(spec)
    samples = load_samples(spec, task)
    everything = samples.gather(torch.arange(12))[0][0]

    def list_samples(rank: int, seed: int) -> list[int]:
        batches = build_batches(spec, task, batch=3, rank=rank, world=2, seed=seed, samples=samples)
        rows = torch.cat([inputs[0] for inputs, _ in islice(batches, 2)])
        return [int((everything == row).all(1).nonzero()[0]) for row in rows]

    assert sorted(list_samples(0, 5) + list_samples(1, 5)) == list(range(12))
    assert list_samples(0, 5) == list_samples(0, 5)
    assert list_samples(0, 5) != list_samples(0, 6)


def test_a_batch_larger_than_the_shard_wraps_around(tiny: Build) -> None:
    spec = tiny(source="tiny_models:dataset")
    task = build_task(spec)
    samples = load_samples(spec, task)
    assert samples.data_source == "tiny_models:dataset, 3 samples"
    (inputs,), target = next(build_batches(spec, task, batch=7, rank=1, world=2, samples=samples))
    assert inputs.shape == (7, 16)
    assert torch.equal(inputs[:, 0], target * 16.0)


def test_an_invalid_dataset_source_is_an_error(tiny: Build) -> None:
    spec = tiny(source="tiny_models:number")
    with pytest.raises(UserMistake, match="torch Dataset"):
        load_samples(spec, build_task(spec))
    spec = tiny(source="synthetik")
    with pytest.raises(UserMistake, match="'synthetik'"):
        load_samples(spec, build_task(spec))


def test_missing_clips_are_replaced_by_synthetic_ones() -> None:
    spec = Workload(
        name="w",
        model="spoken-digits-conv",
        dataset=Dataset(samples=20, source="spoken-digits"),
    )
    samples = load_samples(spec, build_task(spec))
    assert samples.data_source.startswith("synthetic clips (the Free Spoken Digit Dataset is not")
    assert samples.gather(torch.arange(3))[0][0].shape == (3, 12000)


def test_clips_need_a_model_with_matching_input(
    tiny: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wave

    directory = tmp_path / "home" / "datasets" / "spoken-digits"
    directory.mkdir(parents=True)
    for digit, speaker in enumerate(("jackson", "nicolas", "theo", "yweweler")):
        with wave.open(str(directory / f"{digit}_{speaker}_0.wav"), "wb") as clip:
            clip.setparams((1, 2, 8000, 100, "NONE", ""))
            clip.writeframes(bytes(200))
    spec = Workload(
        name="w", model="spoken-digits-conv", dataset=Dataset(samples=4, source="spoken-digits")
    )
    samples = load_samples(spec, build_task(spec))
    assert samples.data_source == "Free Spoken Digit Dataset, 4 clips"
    assert sorted(samples.gather(torch.arange(4))[1].tolist()) == [0, 1, 2, 3]
    spec = tiny("bare", source="spoken-digits")
    with pytest.raises(UserMistake, match="a clip has 12000 numbers"):
        load_samples(spec, build_task(spec))
