"""The program that runs a job on Slurm's nodes, in five parts that every batch script has as they stand here.

A node needs no gpuyard for it, only Python 3.6 or newer: these files import nothing but each other. No shell runs any of it.
"""

import re
from importlib.resources import files

_PARTS = ("place", "running", "nodes", "launch", "batch")
_OURS = re.compile(r"^from gpuyard[^\n]* import (?:\([^)]*\)|[^\n]*)\n", re.MULTILINE)


def program() -> str:
    """All parts as one text, in which each finds the others above it."""
    texts = [(files(__package__) / f"{part}.py").read_text(encoding="utf-8") for part in _PARTS]
    return "\n\n".join(_OURS.sub("", text).strip("\n") for text in texts) + "\n"
