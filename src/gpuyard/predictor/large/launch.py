"""The command lines that start a layout with torchtitan, Megatron-LM, DeepSpeed, and Hugging Face accelerate."""

from gpuyard.predictor.large.prediction import LargePrediction

_TITAN_CHECKPOINT = {"none": "none", "selective": "selective", "full": "full"}


def launch_lines(prediction: LargePrediction) -> dict[str, str]:
    """Return a command line for each framework that can run the layout; names in capitals are yours to fill in."""
    layout = prediction.layout
    lines = {}
    if layout.virtual_pipeline == 1:
        lines["torchtitan"] = _torchtitan(prediction)
    if not layout.zero_bubble and (layout.family == "megatron" or layout.zero <= 1):
        lines["Megatron-LM"] = _megatron(prediction)
    if layout.tensor == layout.pipeline == layout.context == layout.expert == 1:
        lines["DeepSpeed"] = _deepspeed(prediction)
        lines["accelerate"] = _accelerate(prediction)
    return lines


def _torchrun(prediction: LargePrediction) -> str:
    return f"torchrun --nnodes {prediction.nodes} --nproc-per-node {prediction.gpus_per_node}"


def _torchtitan(prediction: LargePrediction) -> str:
    layout = prediction.layout
    shard = layout.data if layout.zero >= 2 else 1
    return (
        f"{_torchrun(prediction)} -m torchtitan.train --job.config_file CONFIG.toml "
        f"--training.seq_len {prediction.sequence} "
        f"--training.local_batch_size {layout.micro_batch * layout.pipeline} "
        f"--training.global_batch_size {layout.global_batch} "
        f"--parallelism.data_parallel_shard_degree {shard} "
        f"--parallelism.data_parallel_replicate_degree {layout.data // shard} "
        f"--parallelism.tensor_parallel_degree {layout.tensor} "
        f"--parallelism.pipeline_parallel_degree {layout.pipeline} "
        f"{'--parallelism.pipeline_parallel_schedule InterleavedZeroBubble ' if layout.zero_bubble else ''}"
        f"--parallelism.context_parallel_degree {layout.context} "
        f"--activation_checkpoint.mode {_TITAN_CHECKPOINT[layout.recompute]}"
    )


def _megatron(prediction: LargePrediction) -> str:
    layout = prediction.layout
    options = [
        f"--tensor-model-parallel-size {layout.tensor}",
        f"--pipeline-model-parallel-size {layout.pipeline}",
        f"--context-parallel-size {layout.context}",
        f"--micro-batch-size {layout.micro_batch}",
        f"--global-batch-size {layout.global_batch}",
        f"--seq-length {prediction.sequence}",
        "--bf16" if prediction.precision != "fp16" else "--fp16",
    ]
    if layout.tensor > 1:
        options.append("--sequence-parallel")
    if layout.virtual_pipeline > 1:
        options.append(f"--num-virtual-stages-per-pipeline-rank {layout.virtual_pipeline}")
    if layout.expert > 1:
        options.append(f"--expert-model-parallel-size {layout.expert}")
    if layout.zero >= 1:
        options.append("--use-distributed-optimizer")
    if layout.recompute == "selective":
        options.append("--recompute-granularity selective")
    elif layout.recompute == "full":
        options.append(
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        )
    if prediction.precision in ("fp8", "mxfp8"):
        options.append(
            f"--fp8-format hybrid --fp8-recipe {'mxfp8' if prediction.precision == 'mxfp8' else 'tensorwise'}"
        )
    return f"{_torchrun(prediction)} pretrain_gpt.py {' '.join(options)} MODEL_AND_DATA_OPTIONS"


def _deepspeed(prediction: LargePrediction) -> str:
    layout = prediction.layout
    steps = layout.global_batch // (layout.micro_batch * layout.data)
    return (
        f"deepspeed --num_nodes {prediction.nodes} --num_gpus {prediction.gpus_per_node} train.py "
        f'--deepspeed_config \'{{"zero_optimization": {{"stage": {layout.zero}}}, "bf16": {{"enabled": true}}, '
        f'"train_micro_batch_size_per_gpu": {layout.micro_batch}, "gradient_accumulation_steps": {steps}}}\''
    )


def _accelerate(prediction: LargePrediction) -> str:
    layout = prediction.layout
    start = (
        f"accelerate launch --num_machines {prediction.nodes} --num_processes {prediction.gpus} "
        f"--mixed_precision {'fp8' if 'fp8' in prediction.precision else 'bf16'}"
    )
    if layout.zero >= 2:
        reshard = "true" if layout.zero >= 3 else "false"
        start += f" --use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward {reshard}"
        if layout.recompute == "full":
            start += " --fsdp_activation_checkpointing true"
    return f"{start} train.py"
