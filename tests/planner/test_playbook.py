"""The playbook's table answers for every team, and its commands can be run."""

import os
import pty
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.catalog.prices import chassis, gpu_prices
from gpuyard.catalog.specfiles import read_plan
from gpuyard.catalog.tiers import tiers
from gpuyard.planner.playbook import Team, advise, read_team
from gpuyard.planner.rulebook import load_rulebook
from tests.docs.test_docs import COMMANDS
from tests.planner.builder import offer, plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50.plan.yaml"
TEAMS = st.builds(
    Team,
    researchers=st.integers(1, 500),
    hires_per_year=st.floats(0, 100),
    gpus=st.integers(0, 5000),
    data_stays=st.booleans(),
    load=st.sampled_from(["steady", "working-hours", "spiky"]),
    inference=st.booleans(),
    data_bytes=st.floats(0, 1e15),
    site_watts=st.none() | st.floats(0, 1e7),
)


@given(team=TEAMS)
def test_every_team_gets_an_answer(team: Team) -> None:
    advice = advise(team)
    assert advice.stage_name and advice.software and advice.commands
    if team.data_stays:
        assert advice.where == "on-premises"
    assert advice.where == "either" or advice.reasons
    if team.hires_per_year == 0 and advice.next is not None:
        assert advice.next.months is None


@given(team=TEAMS)
def test_teams_whose_data_must_stay_are_never_sent_to_a_colocation(team: Team) -> None:
    advice = advise(team)
    named = {advice.stage, advice.next.stage if advice.next else ""}
    assert not (team.data_stays and "colocation" in named)
    assert team.data_stays or "your own data center" not in named | {advice.stage_name}


def test_commands_are_for_this_team() -> None:
    commands = " ; ".join(advise(Team(researchers=10, gpus=200, load="spiky")).commands)
    assert "cost hybrid --load spiky --gpus 200" in commands
    assert "facility fabric --nodes 25 --ports-per-node 8" in commands


@given(team=TEAMS, more=st.integers(0, 1000))
def test_a_larger_team_is_never_at_an_earlier_stage(team: Team, more: int) -> None:
    from dataclasses import replace

    order = [stage.id for stage in load_rulebook().stage]
    larger = replace(team, researchers=team.researchers + more, gpus=team.gpus + more)
    assert order.index(advise(larger).stage) >= order.index(advise(team).stage)


@pytest.mark.parametrize(
    ("team", "stage", "where"),
    [
        (Team(researchers=1, gpus=2), "one-workstation", "on-premises"),
        (Team(researchers=3, gpus=8), "workstation-each", "on-premises"),
        (Team(researchers=8, gpus=8), "shared-server", "on-premises"),
        (Team(researchers=25, gpus=32, inference=True), "servers-with-scheduler", "hybrid"),
        (Team(researchers=60, gpus=128), "cluster", "hybrid"),
        (Team(researchers=5, gpus=200, load="spiky"), "cluster", "cloud"),
        (Team(researchers=60, gpus=128, site_watts=50e3), "colocation", "hybrid"),
        (Team(researchers=8, gpus=8, load="spiky", data_stays=True), "shared-server", "on-premises"),
        (Team(researchers=8, gpus=8, load="spiky", data_bytes=5e13), "shared-server", "hybrid"),
        (Team(researchers=200, gpus=2000), "colocation", "hybrid"),
    ],
)  # fmt: skip
def test_typical_teams(team: Team, stage: str, where: str) -> None:
    advice = advise(team)
    assert (advice.stage, advice.where) == (stage, where)


def test_growth_shows_when_the_next_stage_begins() -> None:
    advice = advise(Team(researchers=2, hires_per_year=4, gpus=4))
    assert advice.stage == "workstation-each"
    assert advice.next is not None
    # more than four people after six months
    assert (advice.next.stage, advice.next.months) == ("a shared server", 7)


def test_a_plan_file_answers_all_questions() -> None:
    spec = read_plan(EXAMPLE)
    answer = read_team(spec, EXAMPLE.parent)
    team, source, figures = answer.team, answer.gpus_from, answer.figures
    assert figures is not None and figures.source.startswith("the plan: ")
    assert (team.researchers, team.hires_per_year, team.data_stays) == (12, 4, True)
    assert team.gpus >= 1 and source.startswith("the plan's choice")
    own = spec.playbook.model_copy(update={"gpus_now": 30})
    answer = read_team(spec.model_copy(update={"playbook": own}), EXAMPLE.parent)
    assert (answer.team.gpus, answer.gpus_from) == (30, "the plan's file")


@pytest.mark.parametrize(
    ("prices", "ways", "where"),
    [
        ({"buy": "$7200", "rent": "$0.10/h"}, ["buy", "on-demand"], "cloud"),
        ({"buy": "$7200", "rent": "$90/h"}, ["buy", "on-demand"], "on-premises"),
        ({"buy": "$7200"}, ["colocate"], "colocation"),
    ],
)
def test_the_playbook_is_where_the_plan_is(
    prices: dict[str, str], ways: list[str], where: str
) -> None:
    spec = plan(offer("a", **prices), search={"ways": ways})
    steady_and_big = spec.playbook.model_copy(update={"data": 5e13, "load": "spiky"})
    answer = read_team(spec.model_copy(update={"playbook": steady_and_big}), EXAMPLE.parent)
    assert answer.where == where
    advice = advise(answer.team, answer=answer)
    assert advice.where == where
    assert advice.reasons[0].startswith("The plan's choice: a, ")
    # big data favors owning, a spiky load favors a cloud, so one of them is against the choice
    assert sum(words.startswith("A rule of thumb favors ") for words in advice.reasons) == 1


def test_a_plan_without_a_choice_leaves_it_to_the_rules() -> None:
    spec = plan(offer("a", rent="$1/h"), time_per_run="1 min", search={"ways": ["on-demand"]})
    answer = read_team(spec, EXAMPLE.parent)
    advice = advise(answer.team, answer=answer)
    assert (answer.where, advice.where) == (None, "on-premises")
    assert advice.reasons[0].startswith("No option of the plan")


COMMAND_LINES = sorted({line for stage in load_rulebook().stage for line in stage.commands})


def test_commands_have_the_numbers_of_the_team() -> None:
    advice = advise(Team(researchers=3, hires_per_year=1.5, gpus=8))
    (growth,) = [line for line in advice.commands if "cost growth" in line]
    assert "--researchers 3 --hires-per-year 1.5" in growth
    advice = advise(Team(researchers=50, gpus=300), plan_file="mine.plan.yaml")
    assert "gpuyard plan mine.plan.yaml --html plan.html" in advice.commands


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_of_the_table_exists_with_its_options(line: str) -> None:
    words = shlex.split(line)
    command = next(name for name in (" ".join(words[:3]), " ".join(words[:2])) if name in COMMANDS)
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", line))
    assert options <= COMMANDS[command]


def test_it_asks_questions_on_a_terminal() -> None:
    host, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuyard", "playbook", "--load", "steady"],
        stdin=inner, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(inner)
    os.write(host, b"8\n2\n8\n5 TB\n40 GB\nn\nn\n")
    out, err = process.communicate(timeout=120)
    os.close(host)
    assert "How many people train models?" in err
    assert "Is the load" not in err  # answered by an option
    assert process.returncode == 0, err
    assert "Stage: a shared server" in out
    assert "8 researchers, 8 GPUs (your answer)" in out


def test_commands_use_the_plans_own_prices() -> None:
    spec = plan(
        offer("own", buy="$7777"), offer("cloud", rent="$2.50/h"), runs_per_month=60,
        people={"researchers": 3}, playbook={"gpus_now": 6}, search={"ways": ["buy", "on-demand"]},
    )  # fmt: skip
    answer = read_team(spec, EXAMPLE.parent)
    assert answer.figures is not None
    advice = advise(answer.team, plan_file="x.plan.yaml", answer=answer)
    (growth,) = [line for line in advice.commands if "cost growth" in line]
    # 60 runs of ten hours on one GPU, by three people
    assert "--gpu-hours 200 --rent '$2.50/h' --buy '$7777' --gpus-per-node 1" in growth
    assert advice.prices_from == "the plan: own as given, cloud as given"


def test_commands_without_a_plan_use_catalog_prices() -> None:
    advice = advise(Team(researchers=3, gpus=8))
    assert advice.prices_from is not None and "lambda/gpu_4x_a6000 of 20" in advice.prices_from
    (growth,) = [line for line in advice.commands if "cost growth" in line]
    price = 4 * gpu_prices().get("rtx-4090").usd + chassis().get("workstation-4").usd
    assert f"--buy '${price:.0f}' --gpus-per-node 4" in growth


def test_every_stage_names_software_and_what_its_machines_cost() -> None:
    for stage in load_rulebook().stage:
        assert load_rulebook().select_tools(stage, None)
        assert stage.tier in tiers()
    advice = advise(Team(researchers=30, gpus=200))
    names = {tool.name for tool in advice.tools}
    assert {"Slurm", "Kubeflow", "NGC catalog", "MLflow", "Seldon Core"} <= names
    assert all(tool.purpose and tool.url.startswith("https://") for tool in advice.tools)
    assert 0 < advice.machines.min_usd < advice.machines.max_usd


def test_vendor_specific_software_follows_the_vendor_of_the_gpus() -> None:
    for stage in load_rulebook().stage:
        tools = {
            vendor: {tool.name for tool in load_rulebook().select_tools(stage, vendor)}
            for vendor in ("NVIDIA", "AMD")
        }
        assert any("ROCm" in name for name in tools["AMD"])
        assert not any("ROCm" in name or "AMD" in name for name in tools["NVIDIA"])
        assert not any("NVIDIA" in name or "NGC" in name for name in tools["AMD"])


def test_tiers_cost_more_the_larger_they_are() -> None:
    prices = [(tier.least.total_usd, tier.most.total_usd) for tier in tiers()]
    assert prices == sorted(prices)
    server = tiers().get("server")
    assert server.price_date == min(server.least.oldest, server.most.oldest)  # type: ignore[type-var]


def test_a_model_that_needs_more_memory_moves_a_team_on() -> None:
    alone = Team(researchers=1, gpus=4)
    assert advise(alone).stage == "one-workstation"
    assert advise(replace(alone, memory_bytes=380e9)).stage == "one-workstation"
    large = advise(replace(alone, memory_bytes=500e9))
    assert large.stage == "shared-server"
    assert "500 GB" in large.why and "384 GB" in large.why
    assert advise(replace(alone, memory_bytes=3e12)).stage == "servers-with-scheduler"


def test_the_next_step_names_the_memory_trigger() -> None:
    for team in (Team(), Team(researchers=3, gpus=8), Team(researchers=10, gpus=8)):
        step = advise(team).next
        assert step is not None and "memory" in step.trigger


def test_a_plan_estimates_the_memory_of_its_model() -> None:
    answer = read_team(read_plan(EXAMPLE), EXAMPLE.parent)
    assert 1e9 < answer.team.memory_bytes < 100e9
