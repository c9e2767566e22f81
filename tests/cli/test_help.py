"""Help texts are written for people who do not know Python."""

from tests.conftest import Cli


def test_help_shows_no_types_of_a_programming_language(cli: Cli) -> None:
    help_text = cli("bench", "train", "--help").stdout
    assert "WORKLOAD" in help_text and "TIME" in help_text
    for kind in ("<str>", "<bool>", "<int>", "<float>"):
        assert kind not in help_text + cli("--help").stdout


def test_paragraphs_are_as_wide_as_the_terminal(cli: Cli) -> None:
    help_text = cli("bench", "relief", "--help", environment={"COLUMNS": "80"}).stdout
    described = help_text.partition("First, one worker")[2].partition("Example:")[0].splitlines()
    # every line except a paragraph's last is full: the next word does not fit
    full = [line for line in described if line.strip()][:-1]
    assert full and all(len(line.rstrip()) > 64 for line in full[1:])


def test_an_error_names_the_expected_value(cli: Cli) -> None:
    for value, message in (
        (["train", "resnet18", "--workers", "two"], "expected a whole number, got 'two'"),
        (["train", "resnet18", "--workers", "0"], "must be 1 or more, got '0'"),
    ):
        assert message in " ".join(cli(*value, status=2).stderr.split())


def test_a_default_is_part_of_its_sentence_and_columns_are_narrow(cli: Cli) -> None:
    help_text = cli("bench", "train", "--help", environment={"COLUMNS": "80"}).stdout
    assert "[default" not in help_text
    assert "(default: 3 s)" in " ".join(help_text.replace("│", " ").split())
    assert "gpuyard bench train [OPTIONS] WORKLOAD " in help_text
    (option,) = [line for line in help_text.splitlines() if "--dry-run" in line]
    assert option.index("Show what would be done") < 32
    assert cli("bench", "train", "-h", environment={"COLUMNS": "80"}).stdout == help_text


def test_an_empty_default_is_not_shown(cli: Cli) -> None:
    for command in (("lease",), ("notebook",)):
        help_text = " ".join(cli(*command, "--help").stdout.replace("│", " ").split())
        assert "Project that `usage` counts it under." in help_text


def test_an_option_for_a_directory_shows_its_placeholder(cli: Cli) -> None:
    assert "--dir DIRECTORY" in " ".join(cli("notebook", "--help").stdout.split())
    assert "--output-dir DIRECTORY" in " ".join(
        cli("share", "export", "slurm", "--help").stdout.split()
    )


def test_the_schema_command_names_every_spec(cli: Cli) -> None:
    from gpuyard.specs.schema import SPECS

    help_text = cli("schema", "--help").stdout
    for name in SPECS:
        assert name in help_text
