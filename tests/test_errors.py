"""An unknown name gets a hint: similar names or where to list them, but never names that only share letters."""

import pytest

from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import closest_names, describe_unknown
from tests.conftest import Cli

GPUS = ("rtx-3090", "rtx-3090-ti", "h100-pcie-80gb", "h100-sxm5-80gb", "gtx-1080", "t4")


@pytest.mark.parametrize(
    ("name", "matches"),
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
def test_similar_names_are_suggested(name: str, matches: list[str]) -> None:
    assert closest_names(name, GPUS) == matches


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("machine", "rtx-2070"),
        ("cloud", "amazon"),
        ("cloud", "google"),
        ("model", "whisper"),
    ],
)
def test_dissimilar_names_are_not_suggested(kind: str, name: str) -> None:
    valid = known_names()[kind]
    assert closest_names(name, valid) == []
    message = describe_unknown(kind, name, valid)
    assert "did you mean" not in message
    assert "`gpuyard catalog " in message or min(valid) in message


def test_few_names_are_listed_and_many_refer_to_the_catalog() -> None:
    few = describe_unknown("key", "x", ("b", "a"))
    assert "'x'" in few and few.endswith("a, b")
    many = describe_unknown("GPU", "zzz", known_names()["GPU"])
    assert "'zzz'" in many and "`gpuyard catalog gpus`" in many
    assert "'x'" in describe_unknown("lab", "x", ())


@pytest.mark.parametrize("kind", ["GPU", "link", "machine", "model", "instance", "PDU", "plug"])
def test_the_suggested_catalog_command_lists_the_names(cli: Cli, kind: str) -> None:
    valid = [f"{'long-name-' * 5}{number}" for number in range(20)]
    command = describe_unknown(kind, "zzz", valid).split("`")[1]
    listed = cli(*command.split()[1:], "--json").stdout
    assert any(f'"{candidate}"' in listed for candidate in known_names()[kind])


def test_the_error_shows_the_kind_of_a_misplaced_name(cli: Cli) -> None:
    for arguments, message in (
        (["predict", "dgx-a100", "--on", "dgx-a100"], "'dgx-a100': it is a machine"),
        (["predict", "resnet50", "--on", "resnet50"], "'resnet50': it is a model"),
    ):
        assert message in cli(*arguments, status=2).stderr


@pytest.mark.parametrize(
    ("option", "hint"), [("--life", None), ("--ren", "--rent"), ("--hepl", "--help")]
)
def test_only_similar_options_are_suggested(cli: Cli, option: str, hint: str | None) -> None:
    error = cli("cost", option, status=2).stderr
    assert f"No such option: {option}" in error
    assert ("Possible options" in error) == (hint is not None)
    assert hint is None or hint in error
