"""Help as people read it."""

from tests.conftest import Cli


def test_help_shows_no_types_of_a_programming_language(cli: Cli) -> None:
    shown = cli("bench", "train", "--help").stdout
    assert "WORKLOAD" in shown and "TIME" in shown
    for kind in ("<str>", "<bool>", "<int>", "<float>"):
        assert kind not in shown + cli("--help").stdout


def test_paragraphs_are_as_wide_as_the_terminal(cli: Cli) -> None:
    shown = cli("bench", "relief", "--help", environment={"COLUMNS": "80"}).stdout
    described = shown.partition("First one worker")[2].partition("Example:")[0].splitlines()
    # every line but a paragraph's last is full: the next word would not have fitted
    full = [line for line in described if line.strip()][:-1]
    assert full and all(len(line.rstrip()) > 64 for line in full[1:])


def test_a_wrong_value_is_told_with_what_was_expected(cli: Cli) -> None:
    for value, sentence in (
        (["train", "resnet18", "--workers", "two"], "expected a whole number, got 'two'"),
        (["train", "resnet18", "--workers", "0"], "must be 1 or more, got '0'"),
    ):
        assert sentence in " ".join(cli(*value, status=2).stderr.split())


def test_a_default_is_part_of_its_sentence_and_no_room_is_lost(cli: Cli) -> None:
    shown = cli("bench", "train", "--help", environment={"COLUMNS": "80"}).stdout
    assert "[default" not in shown
    assert "(default: 3 s)" in " ".join(shown.replace("│", " ").split())
    assert "gpuyard bench train [OPTIONS] WORKLOAD " in shown
    (option,) = [line for line in shown.splitlines() if "--dry-run" in line]
    assert option.index("Show what would be done") < 32
    assert cli("bench", "train", "-h", environment={"COLUMNS": "80"}).stdout == shown
