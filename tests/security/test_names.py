"""Specs reject text that a terminal would interpret, and lists and numbers that are out of range."""

from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_plan, read_sweep, read_workload
from gpuyard.errors import SpecError
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs import Workload


@pytest.mark.parametrize(
    "character", ["\\e", "\\x07", "\\n", "\\t", "\\r", "\\x9b", "\\u202E", "\\0"]
)
@pytest.mark.parametrize("key", ["name", "model", "source"])
def test_no_text_of_a_spec_has_control_characters(tmp_path: Path, character: str, key: str) -> None:
    texts = {"name": "x", "model": "resnet50", "source": "synthetic"}
    texts[key] = f"a{character}]52;c;QUFBQQ=={character}z"
    path = tmp_path / "t.workload.yaml"
    path.write_text(
        'name: "{name}"\nmodel: "{model}"\ndataset: {{samples: 5, source: "{source}"}}\n'.format(
            **texts
        )
    )
    with pytest.raises(SpecError, match=f"{key}: cannot contain control characters, got ") as error:
        read_workload(str(path))
    assert str(error.value).isprintable()


def test_a_name_that_looks_like_markup_is_a_name() -> None:
    assert Workload(name="resnet [fp16] [/v2]", model="resnet50").name == "resnet [fp16] [/v2]"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("name: '{long}'\nmodel: resnet50\n", ":1: name: must have at most 200 characters, got 5,000"),
        ("name: ' '\nmodel: resnet50\n", ":1: name: cannot be empty"),
        ("name: x\nmodel: resnet50\nbatch_per_gpu: 99999999999\n", ":3: batch_per_gpu: must be 1,000,000,000 or less"),
        ("name: x\nmodel: a:b\ninput: {{shape: [1000000, 1000000]}}\n", ":3: input.shape: one sample has more than 1,000,000,000 numbers"),
    ],
)  # fmt: skip
def test_implausible_values_are_rejected(tmp_path: Path, text: str, fragment: str) -> None:
    path = tmp_path / "t.workload.yaml"
    path.write_text(text.format(long="x" * 5000))
    with pytest.raises(SpecError) as error:
        read_workload(str(path))
    assert fragment in str(error.value)


def test_lists_in_a_search_have_a_maximum_length(tmp_path: Path) -> None:
    counts = ", ".join(map(str, range(1, 3001)))
    path = tmp_path / "t.plan.yaml"
    path.write_text(
        f"name: x\nworkload: resnet50\nruns_per_month: 1\nsearch: {{nodes: [{counts}]}}\n"
    )
    with pytest.raises(SpecError, match=r"search.nodes: must have at most 1000 items, got a list"):
        read_plan(path)
    path = tmp_path / "t.sweep.yaml"
    path.write_text(f"name: x\nworkloads: [resnet50]\nbatch: [{counts}]\n")
    with pytest.raises(SpecError, match=r"batch: must have at most 1000 items, got a list"):
        read_sweep(path)


def test_a_rank_with_many_digits_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.sweep.yaml"
    path.write_text(
        f"name: x\nworkloads: [resnet50]\nremedy: [{{compress: 'powersgd:{'9' * 5000}'}}]\n"
    )
    with pytest.raises(SpecError, match=r"compress: expected .*powersgd:RANK") as error:
        read_sweep(path)
    assert len(str(error.value)) < 500


def test_a_long_value_is_shortened_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(f"name: x\nmachine: {'y' * 150_000}\n")
    with pytest.raises(SpecError) as error:
        read_cluster(str(path))
    assert len(str(error.value)) < 500
