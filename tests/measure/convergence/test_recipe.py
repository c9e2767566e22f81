"""How fast a layer learns: less the more inputs it has, and less the longer it has learnt."""

import pytest
from torch import nn

from gpuyard.measure.convergence.recipe import build_optimizer, rate, set_rates


def test_a_rate_goes_with_the_layer_and_falls_with_the_updates() -> None:
    assert rate(inputs=4) == pytest.approx(0.015)
    assert rate(inputs=9) == pytest.approx(0.01)
    assert rate(inputs=4, updates=72) == pytest.approx(0.015 * 0.85**2)
    assert rate(inputs=4, updates=10_000) == pytest.approx(0.015 * 0.05)


def test_an_optimizer_goes_on_at_the_rates_after_any_number_of_updates() -> None:
    optimizer = build_optimizer(nn.Sequential(nn.Linear(9, 4), nn.Linear(4, 2)))
    for updates in (0, 180, 36):  # it follows from the number alone
        set_rates(optimizer, updates)
        found = [group["lr"] for group in optimizer.param_groups]
        assert found == pytest.approx([rate(9, updates), rate(4, updates)])
