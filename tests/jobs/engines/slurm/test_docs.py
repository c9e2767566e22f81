"""The page on Slurm is true: its commands run, one after the other, with its file."""

import os
import re
import shlex

from tests.command_line import run_here
from tests.docs.test_docs import DOCS, fences
from tests.jobs.engines.slurm.conftest import Yard

PAGE = DOCS / "jobs-slurm.md"
TRAIN = """\
import os, sys
sys.stdout.write(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} {' '.join(sys.argv[1:])}\\n")
"""


def test_the_commands_of_the_page_run(yard: Yard) -> None:
    (yard.directory / "train.py").write_text(TRAIN)
    for fence in fences(PAGE):
        if fence.file is not None:
            (yard.directory / fence.file).write_text(fence.text)
    block = next(fence for fence in fences(PAGE) if fence.language == "sh")
    handle, said = "", {}
    for line in block.text.splitlines():
        _, *words = shlex.split(line, comments=True)
        here = [handle if word == "slurm://cluster/17" else word for word in words]
        done = run_here(*here, cwd=yard.directory, environment=os.environ)
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
        said[" ".join(words)] = done.stdout
        if words[0] == "submit" and "--dry-run" not in words:
            (handle,) = re.findall(r"\A(slurm://gpuyard/\d+)\n\Z", done.stdout)
    assert said["submit train.job.yaml --engine slurm --dry-run"].startswith(
        "#!/usr/bin/env python3\n"
    )
    logs = said["logs -f slurm://cluster/17"]
    assert all(f"rank {rank} of 8 --epochs 20" in logs for rank in range(8)), logs
