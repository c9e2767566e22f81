"""A hint names what is near, or where the names are; never what only happens to share letters."""

import pytest

from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import closest_names, describe_unknown
from tests.conftest import Cli

GPUS = ("rtx-3090", "rtx-3090-ti", "h100-pcie-80gb", "h100-sxm5-80gb", "gtx-1080", "t4")


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("rtx-3909", ["rtx-3090"]),
        ("gtx1080", ["gtx-1080"]),
        ("RTX-3090", ["rtx-3090"]),
        ("3090", ["rtx-3090", "rtx-3090-ti"]),
        ("h100", ["h100-pcie-80gb", "h100-sxm5-80gb"]),
        ("h100-80gb", ["h100-pcie-80gb", "h100-sxm5-80gb"]),
        ("x", []),
        ("", []),
        ("dgx-h100", []),
    ],
)
def test_what_is_near(written: str, near: list[str]) -> None:
    assert closest_names(written, GPUS) == near


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("machine", "rtx-2070"),
        ("cloud", "amazon"),
        ("cloud", "google"),
        ("model", "llama"),
    ],
)
def test_what_is_not_near_is_not_suggested(kind: str, written: str) -> None:
    known = known_names()[kind]
    assert closest_names(written, known) == []
    sentence = describe_unknown(kind, written, known)
    assert "did you mean" not in sentence
    assert "lists them" in sentence or "there are: " in sentence


def test_a_long_list_is_named_and_a_short_one_shown() -> None:
    few = describe_unknown("key", "x", ("b", "a"))
    assert few == "no key is called 'x'; there are: a, b"
    many = describe_unknown("GPU", "zzz", known_names()["GPU"])
    assert many == "no GPU is called 'zzz'; `gpuyard catalog gpus` lists them"
    assert describe_unknown("lab", "x", ()) == "no lab is called 'x'; there is none"


@pytest.mark.parametrize("kind", ["GPU", "link", "machine", "model", "instance", "PDU", "plug"])
def test_the_list_that_is_named_has_the_names(cli: Cli, kind: str) -> None:
    known = [f"{'long-name-' * 5}{number}" for number in range(20)]
    command = describe_unknown(kind, "zzz", known).split("`")[1]
    listed = cli(*command.split()[1:], "--json").stdout
    assert any(f'"{name}"' in listed for name in known_names()[kind])


def test_a_name_of_something_else_is_said_to_be_that(cli: Cli) -> None:
    for arguments, sentence in (
        (["predict", "dgx-a100", "--on", "dgx-a100"], "'dgx-a100': it is a machine"),
        (["predict", "resnet50", "--on", "resnet50"], "'resnet50': it is a model"),
    ):
        assert sentence in cli(*arguments, status=2).stderr


@pytest.mark.parametrize(
    ("option", "hint"), [("--life", None), ("--ren", "--rent"), ("--hepl", "--help")]
)
def test_only_options_that_are_near_are_suggested(cli: Cli, option: str, hint: str | None) -> None:
    shown = cli("cost", option, status=2).stderr
    assert f"No such option: {option}" in shown
    assert ("Possible options" in shown) == (hint is not None)
    assert hint is None or hint in shown
