"""How fast a layer learns: less the more inputs it has, and less from epoch to epoch."""

import pytest
from torch import nn

from gpuyard.measure.fit.rates import rate
from gpuyard.measure.fit.recipe import build_optimizer, set_rates


def test_a_rate_goes_with_the_layer_and_falls_with_the_epoch() -> None:
    assert rate(inputs=4) == pytest.approx(0.015)
    assert rate(inputs=9) == pytest.approx(0.01)
    assert rate(inputs=4, epoch=3) == pytest.approx(0.015 * 0.85**2)


def test_an_optimizer_goes_on_at_the_rates_of_any_epoch() -> None:
    optimizer = build_optimizer(nn.Sequential(nn.Linear(9, 4), nn.Linear(4, 2)))
    for epoch in (1, 5, 2):  # it follows from the number alone
        set_rates(optimizer, epoch)
        found = [group["lr"] for group in optimizer.param_groups]
        assert found == pytest.approx([rate(9, epoch), rate(4, epoch)])
