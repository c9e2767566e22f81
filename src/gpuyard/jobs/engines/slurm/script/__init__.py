"""The program that runs a job on Slurm's nodes, in five parts that every batch script includes.

A node needs only Python 3.6 or later, not gpuyard: these files import only each other. No shell runs any of it.
"""

import re
from importlib.resources import files

_PARTS = ("task_directory", "processes", "nodes", "launch", "batch")
_OWN_IMPORT = re.compile(r"^from gpuyard[^\n]* import (?:\([^)]*\)|[^\n]*)\n", re.MULTILINE)


def program() -> str:
    """Return all parts as one text, each after the parts that it uses."""
    texts = [(files(__package__) / f"{part}.py").read_text(encoding="utf-8") for part in _PARTS]
    return "\n\n".join(_OWN_IMPORT.sub("", text).strip("\n") for text in texts) + "\n"
