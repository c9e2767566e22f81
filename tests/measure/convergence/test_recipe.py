"""Learning rates, which fall with a layer's inputs and with the number of updates."""

import pytest
from torch import nn

from gpuyard.measure.convergence.recipe import build_optimizer, learning_rate, set_learning_rates


def test_learning_rates_depend_on_the_layer_and_decay_with_updates() -> None:
    assert learning_rate(inputs=4) == pytest.approx(0.015)
    assert learning_rate(inputs=9) == pytest.approx(0.01)
    assert learning_rate(inputs=4, updates=72) == pytest.approx(0.015 * 0.85**2)
    assert learning_rate(inputs=4, updates=10_000) == pytest.approx(0.015 * 0.05)


def test_an_optimizer_can_be_set_to_any_number_of_updates() -> None:
    optimizer = build_optimizer(nn.Sequential(nn.Linear(9, 4), nn.Linear(4, 2)))
    for updates in (0, 180, 36):  # the order does not matter
        set_learning_rates(optimizer, updates)
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([learning_rate(9, updates), learning_rate(4, updates)])
