"""What strangers call things: specs refuse what a terminal would obey, and lists and numbers that can't be meant."""

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
    with pytest.raises(SpecError, match=f"{key}: can't have control characters, got ") as refused:
        read_workload(str(path))
    assert str(refused.value).isprintable()


def test_a_name_that_looks_like_markup_is_a_name() -> None:
    assert Workload(name="resnet [fp16] [/v2]", model="resnet50").name == "resnet [fp16] [/v2]"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: '{long}'\nmodel: resnet50\n", ":1: name: takes at most 200 characters, got 5,000"),
        ("name: ' '\nmodel: resnet50\n", ":1: name: can't be empty"),
        ("name: x\nmodel: resnet50\nbatch_per_gpu: 99999999999\n", ":3: batch_per_gpu: must be 1,000,000,000 or less"),
        ("name: x\nmodel: a:b\ninput: {{shape: [1000000, 1000000]}}\n", ":3: input.shape: one sample has more than 1,000,000,000 numbers"),
    ],
)  # fmt: skip
def test_what_can_not_be_meant(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "t.workload.yaml"
    path.write_text(text.format(long="x" * 5000))
    with pytest.raises(SpecError) as refused:
        read_workload(str(path))
    assert sentence in str(refused.value)


def test_a_list_that_is_combined_with_others_is_short(tmp_path: Path) -> None:
    counts = ", ".join(map(str, range(1, 3001)))
    path = tmp_path / "t.plan.yaml"
    path.write_text(
        f"name: x\nworkload: resnet50\nruns_per_month: 1\nsearch: {{nodes: [{counts}]}}\n"
    )
    with pytest.raises(SpecError, match=r"search.nodes: takes at most 1000 items, got a list"):
        read_plan(path)
    path = tmp_path / "t.sweep.yaml"
    path.write_text(f"name: x\nworkloads: [resnet50]\nbatch: [{counts}]\n")
    with pytest.raises(SpecError, match=r"batch: takes at most 1000 items, got a list"):
        read_sweep(path)


def test_a_rank_of_many_digits(tmp_path: Path) -> None:
    path = tmp_path / "t.sweep.yaml"
    path.write_text(
        f"name: x\nworkloads: [resnet50]\nremedy: [{{compress: 'powersgd:{'9' * 5000}'}}]\n"
    )
    with pytest.raises(SpecError, match="expected what is sent instead") as refused:
        read_sweep(path)
    assert len(str(refused.value)) < 500


def test_what_is_wrong_is_quoted_in_part(tmp_path: Path) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(f"name: x\nmachine: {'y' * 150_000}\n")
    with pytest.raises(SpecError) as refused:
        read_cluster(str(path))
    assert len(str(refused.value)) < 500
