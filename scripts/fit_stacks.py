"""How likely each software stack of the grid is before anything was measured, by the published sources.

    python scripts/fit_stacks.py            # writes src/gpuyard/predict/data/stacks.json
    python scripts/fit_stacks.py --check    # exits 1 where the file would change

Of each source, the stacks that explain its rows; the sources are then mixed, each counting the same. Run it after
`fit_constants.py`. Nothing is random.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from gpuyard.predict.table import Floats
from gpuyard.predict.validation.points import (
    framework_prior,
    prior_of,
    source_frameworks,
    source_weights,
)

OUTPUT = Path(__file__).parent.parent / "src/gpuyard/predict/data/stacks.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    weights = prior_of(list(source_weights().values()))
    frameworks = sorted({name for names in source_frameworks().values() for name in names})
    found = {"prior": short(weights)} | {
        "frameworks": {name: short(framework_prior(name)) for name in frameworks}
    }
    text = json.dumps(found) + "\n"
    if check:
        sys.exit(0 if OUTPUT.read_text(encoding="utf-8") == text else 1)
    OUTPUT.write_text(text, encoding="utf-8")
    print(
        f"{np.count_nonzero(weights > 1e-3)} of {len(weights)} stacks are likelier than 1 in 1,000"
    )


def short(weights: Floats) -> list[float]:
    return [float(f"{w:.3g}") for w in weights.tolist()]


if __name__ == "__main__":
    main()
