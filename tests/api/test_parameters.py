"""Messages name options on the command line and parameters in Python."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard.api.cost import RunningCosts
from gpuyard.api.parameters import name_parameters
from gpuyard.errors import GpuyardError, UserMistake
from tests.conftest import Cli


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--on is missing: e.g. --on 8xh100, or --on my.yaml", "on is missing: e.g. on='8xh100', or on='my.yaml'"),
        ("--knee-threshold needs --why", "knee_threshold needs why"),
        ("use --global-batch 64 or more (--batch 32)", "use global_batch=64 or more (batch=32)"),
        ("name a job or --log FILE", "name a job or log=FILE"),
        ("run gpuyard plan --budget '$60000' --model resnet50; or add --samples", "run gpuyard plan --budget '$60000' --model resnet50; or add samples"),
        ("measure with: gpuyard bench train x --workers 1,2 --batch 10,50", "measure with: gpuyard bench train x --workers 1,2 --batch 10,50"),
        ("leave it out with --calibration=none", "leave it out with calibration='none'"),
        ("--rate '10 Gbit/s' and `gpuyard usage --json`", "rate='10 Gbit/s' and `gpuyard usage --json`"),
    ],
)  # fmt: skip
def test_options_become_parameters(text: str, expected: str) -> None:
    assert name_parameters(text) == expected


def test_errors_name_parameters_in_python_and_options_in_a_shell(cli: Cli) -> None:
    with pytest.raises(UserMistake, match="on is missing") as caught:
        gy.predict("resnet50")
    assert "--" not in str(caught.value)
    assert "--on is missing" in cli("predict", "resnet50", status=2).stderr
    with pytest.raises(GpuyardError, match="either switch or rate"):
        gy.fabric(4, 2)


def test_printed_results_name_what_python_has(cli: Cli) -> None:
    result = gy.predict("resnet50", on="8xh100")
    assert not re.search(r"--[a-z]", str(result))
    assert ".why()" in str(result)
    assert "--why" in cli("predict", "resnet50", "--on", "8xh100").stdout


def test_options_in_messages_are_parameters_of_some_function() -> None:
    directory = Path(gy.__file__).parent / "api"
    known = {
        name
        for function in (getattr(gy, name) for name in gy.__all__)
        if inspect.isfunction(function)
        for name in inspect.signature(function).parameters
    } | {field.name for field in fields(RunningCosts)}
    for file in ("predict", "plan", "playbook", "cost", "simulate", "fabric", "goodput", "watch"):
        text = (directory / f"{file}.py").read_text(encoding="utf-8")
        for message in re.findall(r'UserMistake\(\s*f?"([^"]*)"', text):
            for option in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", message):
                assert name_parameters(f"--{option}") in known, (file, message)
