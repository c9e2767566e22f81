"""`gpuyard predict`: how a workload would scale on hardware that need not exist here."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import LargePrecision, PredictedStrategy
from gpuyard.cli.large_options import (
    AnyWorkloadArgument,
    GlobalBatchOption,
    LayoutOption,
    LoraOption,
    MicroBatchOption,
    OffloadOption,
    OptimizerOption,
    QloraOption,
    RecomputeOption,
    SequenceOption,
    TokensOption,
)
from gpuyard.cli.options import (
    PYTORCHS_DEFAULT,
    AccumulateOption,
    BucketOption,
    CalibrationOption,
    CompressOption,
    HierarchicalOption,
    LocalSgdOption,
    PowerCapOption,
    ResultsOption,
)
from gpuyard.cli.output import JsonOption, check_output_file, show
from gpuyard.errors import UserMistake
from gpuyard.files import write_text

_KNEE_THRESHOLD = "50%"


def predict(
    workload: AnyWorkloadArgument,
    *,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLUSTER",
            help="A *.cluster.yaml, or hardware: 8xh100, p4d.24xlarge, 2x4xrtx-3090@10G. Several are compared.",
        ),
    ] = None,
    topo: Annotated[
        Path | None,
        typer.Option(
            help="How the machine's GPUs are connected: output of nvidia-smi topo -m, or lstopo XML."
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="Numbers of GPUs, e.g. 1,2,4,8 or 1-8.",
            show_default="doubled up to the whole cluster",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="GPUs used in each machine.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Batch sizes per GPU, e.g. 32,64.")
    ] = None,
    precision: Annotated[
        LargePrecision | None,
        typer.Option(
            help="Precision: fp32, tf32, or autocast with fp16 or bf16; fp8, mxfp8, and nvfp4 for a large model.",
            show_default=PYTORCHS_DEFAULT,
        ),
    ] = None,
    strategy: Annotated[
        PredictedStrategy | None,
        typer.Option(
            help="ddp, dataparallel, horovod, or parameter-server; for a large model ddp, fsdp, megatron, or auto.",
            show_default="ddp, or auto for a model known only by its shape",
        ),
    ] = None,
    layout: LayoutOption = None,
    micro_batch: MicroBatchOption = None,
    global_batch: GlobalBatchOption = None,
    sequence: SequenceOption = None,
    recompute: RecomputeOption = None,
    optimizer: OptimizerOption = None,
    offload: OffloadOption = None,
    lora: LoraOption = None,
    qlora: QloraOption = None,
    tokens: TokensOption = None,
    accumulate: AccumulateOption = 1,
    local_sgd: LocalSgdOption = 1,
    compress: CompressOption = None,
    bucket_mb: BucketOption = None,
    hierarchical: HierarchicalOption = False,
    other_jobs: Annotated[
        int, typer.Option(min=0, help="Other identical jobs sharing these machines.")
    ] = 0,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Explain the largest number of GPUs, what would help, and which run to measure next.",
        ),
    ] = False,
    knee_threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="With --why: minimum gain of an added GPU, as a share of one GPU.",
            show_default=_KNEE_THRESHOLD,
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            help="SVG file: the timeline of --why, the chart of several --batch values, or a large model's layouts.",
            callback=check_output_file,
        ),
    ] = None,
    power_cap: PowerCapOption = None,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict samples/s, scaling efficiency, and the choke for numbers of GPUs.

    Example: gpuyard predict resnet50 --on 2x4xrtx-3090@10G --on dgx-a100 --batch 64

    Example: gpuyard predict llama-3-8b --on 4xdgx-h100 --strategy auto
    """
    from gpuyard.api.predict import predict as predict_scaling

    if svg and len(on or []) > 1:
        raise UserMistake("--svg draws a single cluster: pass only one --on")
    result = predict_scaling(
        workload,
        on=on or [],
        topo=topo,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        batch=batch,
        precision=precision,
        strategy=strategy,
        accumulate=accumulate,
        local_sgd=local_sgd,
        compress=compress,
        bucket_mb=bucket_mb,
        hierarchical=hierarchical,
        other_jobs=other_jobs,
        why=why,
        knee_threshold=knee_threshold,
        calibration=calibration,
        results=results,
        layout=layout,
        micro_batch=micro_batch,
        global_batch=global_batch,
        sequence=sequence,
        recompute=recompute,
        optimizer=optimizer,
        offload=offload,
        lora=lora,
        qlora=qlora,
        tokens=tokens,
        power_cap=power_cap,
    )
    if svg:
        write_text(svg, result.svg())
    show(result.answer, json_output=json_output)
