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


def test_an_option_that_is_empty_has_no_default_to_name(cli: Cli) -> None:
    for command in (("lease",), ("notebook",)):
        shown = " ".join(cli(*command, "--help").stdout.replace("│", " ").split())
        assert "Project that `usage` counts it under." in shown


def test_an_option_that_takes_a_directory_says_so(cli: Cli) -> None:
    assert "--dir DIRECTORY" in " ".join(cli("notebook", "--help").stdout.split())
    assert "--output DIRECTORY" in " ".join(
        cli("share", "export", "slurm", "--help").stdout.split()
    )


def test_the_schema_command_names_every_spec(cli: Cli) -> None:
    from gpuyard.specs.schema import SPECS

    shown = cli("schema", "--help").stdout
    for name in SPECS:
        assert name in shown
