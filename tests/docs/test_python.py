"""The Python blocks of the documentation, and the notebook, run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.share.setup import set_up
from tests.docs.test_docs import fences

ROOT = Path(__file__).parent.parent.parent
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(code: str, directory: Path = ROOT) -> str:
    """Run code in a new process, by default in a checkout, and return its output."""
    done = subprocess.run(
        [sys.executable, "-"],
        input=code,
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_blocks_of_the_page_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    monkeypatch.setenv("GPUYARD_ENGINE", "local")
    set_up(tmp_path / "share", fake_gpus=4, grace_seconds=0.5)
    blocks = _BLOCK.findall((ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    assert len(blocks) > 5
    output = run("\n".join(blocks))
    assert output.startswith("8 GPUs: ")
    assert "What would help" in output


@pytest.mark.parametrize("page", ["README.md", "docs/start-researcher.md"])
def test_the_first_python_block_of_a_page_runs(page: str, tmp_path: Path) -> None:
    blocks = fences(ROOT / page)
    for block in blocks:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    code = next(b.text for b in blocks if b.language == "python" and "import gpuyard" in b.text)
    assert "8 × H100" in run(f"{code}\nprint(p)\nassert '<table' in p._repr_html_()", tmp_path)


def test_every_cell_of_the_notebook_draws_itself() -> None:
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    # as a notebook does it: the last expression of each cell is shown, as HTML if it can be
    code = f"""
import ast
names = {{}}
for source in {cells!r}:
    *body, last = ast.parse(source).body
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    drawn = value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)
    print(len(drawn), "<table" in drawn or "<svg" in drawn)
"""
    lines = run(code).splitlines()
    assert len(lines) == len(cells)
    assert sum(line.endswith("True") for line in lines) == len(cells) - 1
