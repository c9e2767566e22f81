"""How a team of a size should run its GPUs, where, and what comes next."""

from gpuyard import units
from gpuyard.planner.playbook import Advice
from gpuyard.planner.playbook.advice import StageMachines
from gpuyard.report.answer import Answer, Bullets, Column, Drawing, Part, Sentence, Table

_UNDECIDED = ("None of your answers favours either side.",)


def playbook_answer(advice: Advice) -> Answer:
    """The stage, the side, the software, the next step, and commands to go on with."""
    team, coming = advice.team, advice.next
    people = f"{team.researchers} researcher{'s' if team.researchers > 1 else ''}"
    gpus = f"{team.gpus} GPU{'s' if team.gpus != 1 else ''} ({advice.gpus_from})"
    parts: list[Part] = [
        Sentence(f"{people}, {gpus}, {team.load} load"),
        Sentence(f"Stage: {advice.stage_name}", "strong"),
        Bullets([advice.why]),
        Sentence(f"Where: {advice.where}", "strong"),
        Bullets(advice.reasons or _UNDECIDED),
        Sentence("Software at this scale:", "strong"),
        Bullets(advice.software),
        Table(
            "Software by name",
            ("name", "for", Column("page", 1)),
            [[tool.name, tool.purpose, tool.url] for tool in advice.tools],
        ),
        Sentence(_machines(advice.machines)),
    ]
    if coming is not None:
        months = coming.months
        when = f"; at this growth in {units.format_months(months)}" if months else ""
        parts.append(Sentence(f"Next: {coming.stage}, when {coming.trigger}{when}", "strong"))
    # people copy them, so none is broken into lines
    commands = Drawing(lines=lambda _: [f"  {command}" for command in advice.commands])
    parts += [Sentence("Commands:", "strong"), commands]
    if advice.prices_from:
        parts.append(Sentence(f"Prices in them: {advice.prices_from}"))
    return Answer(parts, advice.as_json(), title=advice.stage_name, verb="playbook")


def _machines(machines: StageMachines) -> str:
    least, most = (units.format_about_usd(usd) for usd in (machines.least_usd, machines.most_usd))
    return (
        f"A {machines.tier} costs about {least} to {most} (`gpuyard catalog tiers`; the oldest price in it is of "
        f"{machines.oldest_price})."
    )
