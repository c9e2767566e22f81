"""Every option that names a file to write says before any work whether that can be, and makes no directories."""

import inspect
import shlex
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.output import check_output_directory, check_output_file, check_output_or_stdout
from tests.cli.walk import every_command
from tests.conftest import Cli

COMMANDS = (
    "accept 2xt4@10G --lab 2x1Gbit --html {file}",
    "bench sweep examples/choke.sweep.yaml --output {file}",
    "bench sweep examples/choke.sweep.yaml --svg {file}",
    "calibrate --output {file}",
    "catalog gpus --model resnet50 --html {file}",
    "cost --rent $1/h --buy $1 --html {file}",
    "cost compare examples/v100.offers.yaml --html {file}",
    "cost growth --rent $1/h --buy $1 --html {file}",
    "cost hybrid --rent $1/h --buy $1 --html {file}",
    "deploy bench examples/pair.deployment.yaml --html {file}",
    "deploy fetch examples/pair.deployment.yaml --to {file}",
    "facility examples/rack.cluster.yaml --html {file}",
    "facility examples/rack.cluster.yaml --svg {file}",
    "facility examples/rack.cluster.yaml --csv {file}",
    "facility fabric --nodes 4 --switch nvidia-qm9700 --svg {file}",
    "facility plugs --svg {file}",
    "goodput llama-3-8b --on 8xh100 --html {file}",
    "goodput llama-3-8b --on 8xh100 --svg {file}",
    "facility plugs --html {file}",
    "plan examples/resnet50.plan.yaml --html {file}",
    "predict resnet50 --on t4 --why --svg {file}",
    "results export --output {file}",
    "results export --as wandb --output-dir {file}",
    "share export slurm --output-dir {file}",
    "simulate examples/traces/team.csv --on 2x4 --html {file}",
    "stack lock --output {file}",
    "study examples/spoken-digits.study.yaml --output-dir {file}",
    "topo --preset dual-root --svg {file}",
    "topo rings --svg {file}",
    "train spoken-digits-linear --checkpoint {file}",
    "validate --html {file}",
)
READ = {
    "--calibration", "--certificate", "--dataset", "--demand", "--deployment", "--dir", "--from", "--hostfile", "--key", "--lock", "--log", "--memory", "--results", "--rows",
    "--sacct", "--site", "--socket", "--topo", "--traces", "--usage",
}  # fmt: skip


def takes_a_path(command: Any, parameter: Any) -> bool:
    declared = inspect.signature(command.callback).parameters.get(parameter.name)
    return declared is not None and "Path" in str(declared.annotation)


def test_every_path_is_read_or_checked_at_once() -> None:
    checked = set()
    for name, command in every_command().items():
        for parameter in command.params:
            if command.callback is None or not takes_a_path(command, parameter):
                continue
            option = parameter.opts[0]
            if option.startswith("--") and option not in READ:
                assert parameter.callback is not None, (name, option)
                checked.add((name.removesuffix(" design"), option))
    in_commands = {
        (name, option)
        for line in COMMANDS
        for name in ["facility" if line.startswith("facility examples") else _find_command(line)]
        for option in [word for word in line.split() if word.startswith("--")][-1:]
    }
    assert checked == in_commands


def _find_command(line: str) -> str:
    commands = every_command()
    words = line.split()
    return max((" ".join(words[:n]) for n in (1, 2, 3) if " ".join(words[:n]) in commands), key=len)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_missing_directory_is_a_mistake(cli: Cli, tmp_path: Path, line: str) -> None:
    file = tmp_path / "not" / "there" / "file.out"
    done = cli(*shlex.split(line.replace("{file}", str(file))), status=2)
    assert f"gpuyard: {file} cannot be written: directory {file.parent} not found" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "not").exists()


def test_a_directory_where_a_file_belongs_and_the_other_way(tmp_path: Path) -> None:
    from gpuyard.errors import UserMistake

    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserMistake, match=r"directory; .*file"):
        check_output_file(tmp_path)
    with pytest.raises(UserMistake, match=r"file; .*directory"):
        check_output_directory(file)
    assert check_output_or_stdout(Path("-")) == Path("-")
    with pytest.raises(UserMistake, match=r"file .*'-'"):
        check_output_file(Path("-"))
    assert check_output_directory(tmp_path / "new") == tmp_path / "new"
