"""A director chassis with as many boards as its ports in use need."""

import math
from dataclasses import dataclass
from fractions import Fraction

from gpuyard.catalog.fabric import Switch
from gpuyard.errors import UserMistake

# an assumption: of a full director's price, what the bare chassis with its fans and supplies costs
_CHASSIS_SHARE = 0.25


@dataclass(frozen=True)
class Boards:
    """What sits in one chassis."""

    leaf_boards: int
    spine_boards: int
    share: float  # of the boards of a full one

    @property
    def price_share(self) -> float:
        """Of a full chassis's price."""
        return _CHASSIS_SHARE + (1 - _CHASSIS_SHARE) * self.share


def populate(switch: Switch, ports_used: int, oversubscription: Fraction = Fraction(1)) -> Boards:
    """Leaf boards for the ports, and spine boards for the traffic of the fullest chip.

    Half of a leaf chip's ports face out. The backplane joins each chip to each spine board with the
    same number of links, so a chip needs spines for the ports that it uses: 18 ports on a 36-port chip
    with 3 links to each spine board need all 6.
    """
    if not (
        switch.leaf_boards
        and switch.ports_per_leaf_board
        and switch.spine_boards
        and switch.chip_ports
    ):
        raise UserMistake(f"{switch.id} is not a director")
    half = switch.chip_ports // 2
    chips_per_board = switch.ports_per_leaf_board // half
    leaf_boards = max(1, math.ceil(ports_used / switch.ports_per_leaf_board))
    fullest = math.ceil(ports_used / (leaf_boards * chips_per_board))
    links_per_spine = Fraction(half, switch.spine_boards)
    spine_boards = max(1, math.ceil(fullest / oversubscription / links_per_spine))
    share = (leaf_boards + spine_boards) / (switch.leaf_boards + switch.spine_boards)
    return Boards(leaf_boards, spine_boards, share)
