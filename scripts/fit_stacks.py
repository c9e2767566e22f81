"""Fit the prior probability of each software stack in the grid to the published sources.

    python scripts/fit_stacks.py            # writes src/gpuyard/predictor/data/stacks.json
    python scripts/fit_stacks.py --check    # exits 1 if the file would change

The stacks that explain each source's rows are mixed with equal weights per source. Run this script after
`fit_constants.py`. Nothing is random.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.points import (
    framework_prior,
    mix_priors,
    source_frameworks,
    source_weights,
)

OUTPUT = Path(__file__).parent.parent / "src/gpuyard/predictor/data/stacks.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    weights = mix_priors(list(source_weights().values()))
    frameworks = sorted({name for names in source_frameworks().values() for name in names})
    priors = {
        "prior": round_weights(weights),
        "frameworks": {name: round_weights(framework_prior(name)) for name in frameworks},
    }
    text = json.dumps(priors) + "\n"
    if check:
        sys.exit(0 if OUTPUT.read_text(encoding="utf-8") == text else 1)
    OUTPUT.write_text(text, encoding="utf-8")
    print(
        f"{np.count_nonzero(weights > 1e-3)} of {len(weights)} stacks have a probability above 0.1%"
    )


def round_weights(weights: Floats) -> list[float]:
    return [float(f"{w:.3g}") for w in weights.tolist()]


if __name__ == "__main__":
    main()
