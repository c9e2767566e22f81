"""Every published reading is of a slot that its GPU has, and plausible for it."""

from gpuyard.catalog import gpus, links
from gpuyard.catalog.hardware import staged_copies


def _generation(link: str) -> int:
    return int(link.removeprefix("pcie-").partition("-")[0])


def test_the_slots_are_ones_that_the_gpus_have() -> None:
    for copy in staged_copies():
        assert copy.link in links(), copy.id
        assert _generation(copy.link) <= gpus().get(copy.gpu).pcie_generation, copy.id


def test_where_only_the_rate_names_the_slot_no_lesser_one_would_carry_it() -> None:
    for copy in staged_copies():
        raw = links().get(copy.link).raw_gb_per_second
        assert copy.one_way_gb_per_second < raw, copy.id
        if copy.slot_known_by == "rate":  # half the lanes or the generation before
            assert copy.one_way_gb_per_second > raw / 2, copy.id
            assert _generation(copy.link) == gpus().get(copy.gpu).pcie_generation, copy.id


def test_both_ways_are_never_slower_than_one_nor_faster_than_two() -> None:
    for copy in staged_copies():
        both = copy.both_ways_gb_per_second
        if both is not None:
            assert copy.one_way_gb_per_second < both < 2 * copy.one_way_gb_per_second, copy.id


def test_shares_are_of_the_effective_rate() -> None:
    copy = staged_copies().get("rtx-3090-club")  # PCIe 4.0 x16: 24 GB/s
    assert copy.one_way_share == 11.28 / 24
    assert copy.both_ways_share == 16.77 / 48
    assert staged_copies().get("h100-sxm5-nccl-1264").both_ways_share is None


def test_there_are_several_generations_and_every_source_has_an_address() -> None:
    assert {_generation(copy.link) for copy in staged_copies()} == {3, 4, 5}
    assert len({copy.gpu for copy in staged_copies()}) >= 6
    for copy in staged_copies():
        assert copy.source.startswith("https://"), copy.id
