"""The lock as a Dockerfile."""

import re

import pytest

from tests.conftest import Cli

INSTRUCTIONS = {"FROM", "RUN", "ENV", "LABEL"}


def instructions(text: str) -> list[tuple[str, str]]:
    """As Docker's parser joins lines: comments out, a backslash at the end goes on."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


@pytest.mark.parametrize("base", ["debian", "ubuntu", "cuda"])
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_it_has_the_same_list(cli: Cli, framework: str, base: str) -> None:
    text = cli("stack", "dockerfile", "--framework", framework, "--from", base).stdout
    found = instructions(text)
    assert found[0][0] == "FROM"
    assert {word for word, _ in found} <= INSTRUCTIONS
    pinned = cli("stack", "lock", "--requirements", framework).stdout.splitlines()[1:]
    install = next(rest for word, rest in found if word == "RUN" and "pip install" in rest)
    assert [word for word in install.split() if "==" in word] == pinned
    assert "NVIDIA driver" in text


def test_without_a_gpu_it_asks_for_none(cli: Cli) -> None:
    text = cli("stack", "dockerfile", "--cpu").stdout
    assert "torch==2.13.0+cpu" in text
    assert "NVIDIA" not in text
    assert "nvidia" not in text


def test_mistakes_are_sentences(cli: Cli) -> None:
    said = cli("stack", "dockerfile", "--framework", "mxnet", "--from", "ubuntu", status=2).stderr
    assert "Python 3.11" in said
    assert "debian" in cli("stack", "dockerfile", "--from", "alpine", status=2).stderr
