"""The playbook's table: stages and reasons with the conditions under which they apply."""

import datetime
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Fact = bool | int | float | str
Side = Literal["cloud", "on-premises"]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    when: dict[str, Fact]

    def applies_to(self, facts: Mapping[str, Fact]) -> bool:
        return all(_compare(condition, value, facts) for condition, value in self.when.items())


class StageFigures(BaseModel):
    """The machine, instance, and hours whose figures the stage's commands use if there is no plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str  # built from parts, named like in a plan's `search.offers`
    instance: str
    gpu_hours: float = Field(gt=0)  # per person and month


class Tool(BaseModel):
    """Software and its purpose."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    purpose: str
    vendor: str | None = None  # of the GPUs that it is for; None: of any
    url: str
    date: datetime.date


class Stage(_Row):
    """The way a team of some size works, and the trigger for the next stage."""

    id: str
    name: str
    why: str
    software: tuple[str, ...] = Field(min_length=1)
    tools: tuple[str, ...] = Field(min_length=1)
    tier: str  # of its machines, in `gpuyard catalog tiers`
    trigger: str
    figures: StageFigures
    commands: tuple[str, ...] = Field(min_length=1)


class Reason(_Row):
    """A reason in favor of one side."""

    side: Side
    text: str
    decides: bool = False


class Rulebook(BaseModel):
    """All stages, reasons, and tools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: tuple[Stage, ...] = Field(min_length=1)
    reason: tuple[Reason, ...] = Field(min_length=1)
    tool: dict[str, Tool]

    def select_tools(self, stage: Stage, vendor: str | None) -> tuple[Tool, ...]:
        """Select the tools of a stage for a vendor's GPUs, or for those of every vendor if it is unknown."""
        tools = (self.tool[name] for name in stage.tools)
        return tuple(t for t in tools if vendor is None or t.vendor in (None, vendor))


def _compare(condition: str, value: Fact, facts: Mapping[str, Fact]) -> bool:
    for suffix, is_minimum in (("_at_least", True), ("_at_most", False)):
        if condition.endswith(suffix):
            fact = facts[condition.removesuffix(suffix)]
            if isinstance(fact, str) or isinstance(value, str):
                raise ValueError(f"{condition} must compare numbers")
            return fact >= value if is_minimum else fact <= value
    return facts[condition] == value


@functools.cache
def load_rulebook() -> Rulebook:
    text = (resources.files("gpuyard.planner") / "data" / "playbook.toml").read_text(
        encoding="utf-8"
    )
    return Rulebook.model_validate(tomllib.loads(text))
