"""The answer of `gpuyard playbook`: a team's stage, where to run, software, and the next step."""

from collections.abc import Sequence

from gpuyard import units
from gpuyard.planner.playbook import Advice, StageMachines
from gpuyard.report.answer import Answer, Bullets, Column, Drawing, Part, Sentence, Table

_UNDECIDED = ("None of your answers favors either side.",)


def playbook_answer(advice: Advice, assumed: Sequence[str] = ()) -> Answer:
    """Show the stage, the location, the software, the next step, and commands to continue with.

    `assumed` lists what gpuyard assumed about a goal without a file.
    """
    team, next_step = advice.team, advice.next
    people = f"{team.researchers} researcher{'s' if team.researchers > 1 else ''}"
    gpus = f"{team.gpus} GPU{'s' if team.gpus != 1 else ''} ({advice.gpus_from})"
    parts: list[Part] = [
        Sentence(f"{people}, {gpus}, {team.load} load"),
        *([Sentence(f"Assumed: {'; '.join(assumed)}.")] if assumed else []),
        Sentence(f"Stage: {advice.stage_name}", "strong"),
        Bullets([advice.why]),
        Sentence(f"Where: {advice.where}", "strong"),
        Bullets(advice.reasons or _UNDECIDED),
        Sentence("Software at this scale:", "strong"),
        Bullets(advice.software),
        Table(
            "Software by name",
            ("name", "GPUs", "for", Column("page", 1)),
            [[tool.name, tool.vendor or "any", tool.purpose, tool.url] for tool in advice.tools],
        ),
        Sentence(_describe_machines(advice.machines)),
    ]
    if next_step is not None:
        months = next_step.months
        when = f"; at this growth in {units.format_months(months)}" if months else ""
        parts.append(Sentence(f"Next: {next_step.stage}, when {next_step.trigger}{when}", "strong"))
    # people copy commands, so lines are not wrapped
    commands = Drawing(lines=lambda _: [f"  {command}" for command in advice.commands])
    parts += [Sentence("Commands:", "strong"), commands]
    if advice.prices_from:
        parts.append(Sentence(f"Prices in these commands: {advice.prices_from}"))
    return Answer(parts, advice.as_json(), title=advice.stage_name, verb="playbook", rows="tools")


def _describe_machines(machines: StageMachines) -> str:
    low, high = (units.format_rough_usd(usd) for usd in (machines.min_usd, machines.max_usd))
    return (
        f"A {machines.tier} costs about {low} to {high} (`gpuyard catalog tiers`; the oldest price is from "
        f"{machines.oldest_price})."
    )
