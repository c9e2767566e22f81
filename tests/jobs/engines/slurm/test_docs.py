"""The commands on the Slurm page run, one after the other, with the page's file."""

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


def test_the_commands_on_the_page_run(yard: Yard) -> None:
    (yard.directory / "train.py").write_text(TRAIN)
    for fence in fences(PAGE):
        if fence.file is not None:
            (yard.directory / fence.file).write_text(fence.text)
    block = next(fence for fence in fences(PAGE) if fence.language == "sh")
    handle, outputs = "", {}
    for line in block.text.splitlines():
        _, *words = shlex.split(line, comments=True)
        arguments = [handle if word == "slurm://cluster/17" else word for word in words]
        done = run_here(*arguments, cwd=yard.directory, environment=os.environ)
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
        outputs[" ".join(words)] = done.stdout
        if words[0] == "submit" and "--dry-run" not in words:
            (handle,) = re.findall(r"\A(slurm://gpuyard/\d+)\n\Z", done.stdout)
    assert outputs["submit train.job.yaml --engine slurm --dry-run"].startswith(
        "#!/usr/bin/env python3\n"
    )
    logs = outputs["logs -f slurm://cluster/17"]
    assert all(f"rank {rank} of 8 --epochs 20" in logs for rank in range(8)), logs
