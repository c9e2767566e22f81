"""The lock as a Dockerfile."""

import re

import pytest

from tests.conftest import Cli

INSTRUCTIONS = {"FROM", "RUN", "ENV", "LABEL"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Join lines like Docker's parser: drop comments, and continue after a backslash."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


@pytest.mark.parametrize("base", ["debian", "ubuntu", "cuda"])
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_it_has_the_same_list(cli: Cli, framework: str, base: str) -> None:
    text = cli("stack", "dockerfile", "--framework", framework, "--base", base).stdout
    parsed = instructions(text)
    assert parsed[0][0] == "FROM"
    assert {word for word, _ in parsed} <= INSTRUCTIONS
    pins = cli("stack", "lock", "--requirements", framework).stdout.splitlines()[1:]
    install = next(rest for word, rest in parsed if word == "RUN" and "pip install" in rest)
    assert [word for word in install.split() if "==" in word] == pins
    assert "NVIDIA driver" in text


def test_without_a_gpu_it_asks_for_none(cli: Cli) -> None:
    text = cli("stack", "dockerfile", "--cpu-only").stdout
    assert "torch==2.13.0+cpu" in text
    assert "NVIDIA" not in text
    assert "nvidia" not in text


def test_mistakes_are_sentences(cli: Cli) -> None:
    output = cli("stack", "dockerfile", "--framework", "mxnet", "--base", "ubuntu", status=2).stderr
    assert "Python 3.11" in output
    assert "debian" in cli("stack", "dockerfile", "--base", "alpine", status=2).stderr
