"""`gy.predict`: rows with attributes, the same document as the command line, and text, HTML, and plots."""

import json
import subprocess
import sys

import pytest

import gpuyard as gy
from gpuyard.api.result import Result
from gpuyard.errors import UserMistake
from gpuyard.specs import Workload
from tests.conftest import Cli


def test_rows_have_the_keys_of_the_json_as_attributes() -> None:
    result = gy.predict("resnet50", on="8xh100", gpus=[1, 2, 4, 8])
    assert [row.gpus for row in result] == [1, 2, 4, 8]
    assert result[-1].low < result[-1].samples_per_second < result[-1].high
    assert result[0].choke == "gpu"
    assert result[0].step.compute_seconds > 0
    assert result.workload == "resnet50"
    assert result.predictions[1].samples_per_second == result[1].samples_per_second


@pytest.mark.parametrize("more", [[], ["--why"], ["--on", "2x4xrtx-3090@10G"]])
def test_the_document_is_that_of_the_command(cli: Cli, more: list[str]) -> None:
    run = cli("predict", "resnet50", "--on", "8xh100", "--gpus", "1-4", *more, "--json")
    clusters = ["8xh100", *more[1:]]
    result = gy.predict("resnet50", on=clusters, gpus="1-4", why="--why" in more)
    assert result.to_dict() == json.loads(run.stdout)
    assert result.to_json() == run.stdout


def test_text_and_html_say_the_same() -> None:
    result = gy.predict(Workload(name="mine", model="vgg16"), on="2xgtx-1080-ti", batch=512)
    assert str(result).startswith("Out of memory. ")
    assert "Out of memory. " in result._repr_html_()
    assert "<table" in result._repr_html_()
    assert "<script" not in result._repr_html_()


def _read_first_line(model: str, on: str, gpus: int | None = None) -> str:
    (sentence, *_) = gy.predict(model, on=on, gpus=gpus).answer.parts
    return sentence.text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("on", "gpus", "begins", "verdict"),
    [
        ("8xh100", None, "8 GPUs: ", "Adding GPUs helps up to 8, the whole cluster."),
        ("2x8xh100@10G", 8, "8 GPUs: ", "More are slower: 16 reach "),
        ("2x8xh100@10G", 16, "16 GPUs: ", "limited by the network. 8 GPUs are "),
        ("2x8xh100@10G", None, "16 GPUs: ", "limited by the network. 8 GPUs are "),
        ("8xh100", 2, "2 GPUs: ", "8 GPUs are "),
        ("4x1xrtx-3090@1G", None, "4 GPUs: ", "1 GPU is "),
    ],
)
def test_the_first_line_compares_with_the_whole_cluster(
    on: str, gpus: int | None, begins: str, verdict: str
) -> None:
    line = _read_first_line("vgg16", on, gpus)
    assert line.startswith(begins)
    assert verdict in line


def test_the_first_line_judges_no_larger_cluster_than_was_predicted() -> None:
    assert _read_first_line("resnet50", "h100").endswith("limited by compute.")


def test_why_explains_the_same_prediction() -> None:
    result = gy.predict("vgg16", on="2x4xrtx-3090@10G", gpus=8)
    explanation = result.why()
    assert explanation.predictions[0].samples_per_second == result[0].samples_per_second
    assert "What would help" in str(explanation)
    assert explanation.svg().startswith("<svg")


def test_unknown_attributes_and_missing_drawings_are_errors() -> None:
    result = gy.predict("resnet50", on="h100")
    with pytest.raises(AttributeError, match="sampels"):
        _ = result.sampels
    with pytest.raises(UserMistake, match="--why"):
        result.svg()
    assert "precision" in dir(result)
    assert isinstance(result, Result)


def test_importing_gpuyard_imports_nothing_heavy() -> None:
    code = "import sys, gpuyard; print(sorted({'numpy', 'pydantic', 'torch', 'typer', 'rich'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
    assert "predict" in dir(gy)
    with pytest.raises(AttributeError, match="predikt"):
        _ = gy.predikt  # type: ignore[attr-defined]
