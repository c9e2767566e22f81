"""Options that describe how a large model is divided among GPUs; all commands that predict one share them."""

from typing import Annotated, Literal

import typer

_PANEL = "Large models"

AnyWorkloadArgument = Annotated[
    str,
    typer.Argument(help="A *.workload.yaml, a catalog model, or a Hugging Face config.json."),
]

LayoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=SIZE,…",
        help="Sizes of groups: tp (tensor), pp (pipeline), vp (chunks per stage), cp (context), ep (expert), zero, shard, zb (1: zero-bubble).",
        show_default="the fastest that fits",
        rich_help_panel=_PANEL,
    ),
]
MicroBatchOption = Annotated[
    int | None,
    typer.Option(min=1, help="Samples per forward pass and replica.", rich_help_panel=_PANEL),
]
GlobalBatchOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Samples per optimizer step.",
        show_default="about a million tokens",
        rich_help_panel=_PANEL,
    ),
]
SequenceOption = Annotated[
    int | None,
    typer.Option(min=1, max=100_000_000, help="Tokens per sample.", rich_help_panel=_PANEL),
]
RecomputeOption = Annotated[
    Literal["none", "selective", "full"] | None,
    typer.Option(help="Activations that backward computes again.", rich_help_panel=_PANEL),
]
OptimizerOption = Annotated[
    Literal["adamw", "adam", "adam-8bit", "momentum", "sgd"] | None,
    typer.Option(help="Optimizer of a large model.", show_default="adamw", rich_help_panel=_PANEL),
]
OffloadOption = Annotated[
    Literal["optimizer", "parameters"] | None,
    typer.Option(help="States that host memory holds.", rich_help_panel=_PANEL),
]
LoraOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="RANK", help="Rank of LoRA adapters.", rich_help_panel=_PANEL),
]
QloraOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="RANK", help="Rank of LoRA on 4-bit weights.", rich_help_panel=_PANEL
    ),
]
TokensOption = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT",
        help="Tokens of the whole training, e.g. 20B; the answer then gives days.",
        rich_help_panel=_PANEL,
    ),
]
