"""The command lines that start a layout with torchtitan, Megatron-LM, DeepSpeed, and Hugging Face accelerate.

Options are those of torchtitan's `JobConfig`, Megatron Core's `arguments.py`, DeepSpeed's configuration, and
`accelerate launch`. A framework that would train something else is left out, with the reason.
"""

import json
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from gpuyard.predictor.large.prediction import LargePrediction
from gpuyard.predictor.large.training import LargeTraining

_FIRST_LAST = "--parallelism.pipeline_parallel_{}_stage_less_layers 0"


@dataclass
class LaunchLines:
    """A command line for each framework that can train the layout, and why the others cannot."""

    commands: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


class _CannotTrainError(Exception):
    """The reason why a framework cannot train a layout."""


def write_launch_lines(prediction: LargePrediction, training: LargeTraining) -> LaunchLines:
    """Return the command line of each framework; names in capitals are yours to fill in."""
    frameworks = {
        "torchtitan": _write_torchtitan,
        "Megatron-LM": _write_megatron,
        "DeepSpeed": _write_deepspeed,
        "accelerate": _write_accelerate,
    }
    lines = LaunchLines()
    for name, write in frameworks.items():
        try:
            command = write(prediction, training)
        except _CannotTrainError as reason:
            lines.left_out[name] = str(reason)
        else:
            tf32 = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 " if prediction.precision == "tf32" else ""
            lines.commands[name] = tf32 + command
    return lines


def _refuse_if(condition: object, reason: str) -> None:
    if condition:
        raise _CannotTrainError(reason)


def _write_torchrun(prediction: LargePrediction) -> str:
    return f"torchrun --nnodes {prediction.nodes} --nproc-per-node {prediction.gpus_per_node}"


def _write_torchtitan(prediction: LargePrediction, training: LargeTraining) -> str:
    layout, precision = prediction.layout, prediction.precision
    converters = {"fp8": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"}
    _refuse_if(precision in ("fp16", "nvfp4"), f"torchtitan does not train in {precision}")
    _refuse_if(training.lora_rank or training.qlora_rank, "torchtitan has no LoRA")
    _refuse_if(
        training.optimizer not in ("adam", "adamw"),
        f"torchtitan has no {training.optimizer}",
    )
    _refuse_if(training.offload == "optimizer", "FSDP offloads all states or none")
    _refuse_if(
        layout.zero == 1 and layout.data * layout.context > 1,
        "torchtitan has no ZeRO stage 1; --strategy fsdp finds a layout",
    )
    shard = (layout.shard or layout.data * layout.context) if layout.zero >= 2 else layout.context
    _refuse_if(
        shard % layout.context,
        f"torchtitan's shards are multiples of cp={layout.context}",
    )
    _refuse_if(training.offload and layout.zero < 2, "torchtitan offloads only with FSDP")
    shard = shard // layout.context
    options = [
        f"--training.seq_len {prediction.sequence}",
        f"--training.global_batch_size {layout.global_batch}",
        f"--parallelism.data_parallel_shard_degree {shard}",
        f"--parallelism.data_parallel_replicate_degree {layout.data // shard}",
        f"--parallelism.tensor_parallel_degree {layout.tensor}",
        f"--parallelism.context_parallel_degree {layout.context}",
        f"--activation_checkpoint.mode {layout.recompute}",
        f"--optimizer.name {'AdamW' if training.optimizer == 'adamw' else 'Adam'}",
    ]
    if layout.zero >= 2:
        reshard = "always" if layout.zero == 3 else "never"
        options.append(f"--parallelism.fsdp_reshard_after_forward {reshard}")
    if layout.expert > 1:
        options.append(f"--parallelism.expert_parallel_degree {layout.expert}")
        options.append("--parallelism.expert_tensor_parallel_degree 1")
    options += _write_torchtitan_pipeline(prediction, training)
    if precision in converters:
        options.append(f"--model.converters {converters[precision]}")
    if precision in ("fp32", "tf32"):
        options.append("--training.mixed_precision_param float32")
    if training.offload:
        options.append("--training.enable_cpu_offload")
    return (
        f"{_write_torchrun(prediction)} -m torchtitan.train --job.config_file CONFIG.toml "
        f"{' '.join(options)}"
    )


def _write_torchtitan_pipeline(prediction: LargePrediction, training: LargeTraining) -> list[str]:
    layout = prediction.layout
    if layout.pipeline == 1:
        return [f"--training.local_batch_size {layout.micro_batch}"]
    _refuse_if(
        layout.zero_bubble and layout.virtual_pipeline == 1,
        "torchtitan's zero-bubble schedules need vp=2 or more",
    )
    schedule = "1F1B" if layout.virtual_pipeline == 1 else "Interleaved1F1B"
    if layout.zero_bubble:
        schedule = "InterleavedZeroBubble"
    chunks, layers = layout.pipeline * layout.virtual_pipeline, _count_layers(training)
    each = -(-layers // chunks)
    _refuse_if(
        -(-layers // each) != chunks,
        f"torchtitan makes {-(-layers // each)} stages of {each} layers, not {chunks}",
    )
    return [
        f"--training.local_batch_size {layout.global_batch // layout.data}",
        f"--parallelism.pipeline_parallel_degree {layout.pipeline}",
        f"--parallelism.pipeline_parallel_schedule {schedule}",
        f"--parallelism.pipeline_parallel_microbatch_size {layout.micro_batch}",
        f"--parallelism.pipeline_parallel_layers_per_stage {each}",
        _FIRST_LAST.format("first"),
        _FIRST_LAST.format("last"),
    ]


def _count_layers(training: LargeTraining) -> int:
    return training.shape.layers + training.shape.encoder_layers


def _write_megatron(prediction: LargePrediction, training: LargeTraining) -> str:
    layout, precision = prediction.layout, prediction.precision
    _refuse_if(layout.zero_bubble, "Megatron-LM has no zero-bubble schedule")
    _refuse_if(
        layout.family == "pytorch" and layout.zero >= 2,
        "predicted with PyTorch's FSDP; --strategy megatron finds a layout",
    )
    _refuse_if(training.lora_rank or training.qlora_rank, "Megatron-LM has no LoRA")
    _refuse_if(training.offload == "parameters", "Megatron-LM offloads only the optimizer")
    optimizers = {"adamw": "adam", "adam": "adam", "momentum": "sgd", "sgd": "sgd"}
    _refuse_if(
        training.optimizer not in optimizers,
        f"Megatron-LM has no {training.optimizer}",
    )
    options = [
        f"--tensor-model-parallel-size {layout.tensor}",
        f"--pipeline-model-parallel-size {layout.pipeline}",
        f"--context-parallel-size {layout.context}",
        f"--micro-batch-size {layout.micro_batch}",
        f"--global-batch-size {layout.global_batch}",
        f"--seq-length {prediction.sequence}",
        f"--optimizer {optimizers[training.optimizer]}",
    ]
    if training.optimizer == "sgd":
        options.append("--sgd-momentum 0")
    if layout.tensor > 1:
        options.append("--sequence-parallel")
    layers = _count_layers(training)
    if layers % (layout.pipeline * layout.virtual_pipeline):
        options.append(f'--pipeline-model-parallel-layout "{_stage_layout(prediction, layers)}"')
    elif layout.virtual_pipeline > 1:
        options.append(f"--num-virtual-stages-per-pipeline-rank {layout.virtual_pipeline}")
    if layout.expert > 1:
        options.append(f"--expert-model-parallel-size {layout.expert}")
    options += _write_megatron_states(prediction, training)
    options += {
        "none": [],
        "selective": ["--recompute-granularity selective"],
        "full": [
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        ],
    }[layout.recompute]
    options += {
        "fp32": [],
        "tf32": [],
        "fp16": ["--fp16"],
        "fp8": ["--bf16 --fp8-format hybrid --fp8-recipe tensorwise"],
        "mxfp8": ["--bf16 --fp8-format e4m3 --fp8-recipe mxfp8"],
        "nvfp4": ["--bf16 --fp4-format e2m1 --fp4-recipe nvfp4"],
    }.get(precision, ["--bf16"])
    return (
        f"{_write_torchrun(prediction)} pretrain_gpt.py {' '.join(options)} MODEL_AND_DATA_OPTIONS"
    )


def _write_megatron_states(prediction: LargePrediction, training: LargeTraining) -> list[str]:
    layout = prediction.layout
    options = []
    if layout.zero >= 1:
        options.append("--use-distributed-optimizer")
    if layout.zero >= 2:
        kind = "optim_grads_params" if layout.zero == 3 else "optim_grads"
        options.append(f"--use-megatron-fsdp --data-parallel-sharding-strategy {kind}")
    replicas = layout.data * layout.context
    if layout.zero >= 1 and layout.shard and layout.shard < replicas:
        options.append(f"--num-distributed-optimizer-instances {replicas // layout.shard}")
    if training.offload:
        options.append("--optimizer-cpu-offload --use-precision-aware-optimizer")
    return options


def _stage_layout(prediction: LargePrediction, layers: int) -> str:
    """Return Megatron Core's text for uneven stages, as in "E|(t|)*126L": ends have fewer layers than others."""
    chunks = prediction.layout.pipeline * prediction.layout.virtual_pipeline
    counts = [-(-layers // chunks)] * chunks
    from_ends = [i for pair in zip(range(chunks), range(chunks)[::-1], strict=True) for i in pair]
    for index in [*reversed(from_ends[:2]), *from_ends[2:]][: sum(counts) - layers]:
        counts[index] -= 1
    inner = ""
    for count, run in groupby(counts[1:-1]):
        inner += f"({'t' * count}|)*{len(list(run))}"
    return f"E{'t' * counts[0]}|{inner}{'t' * counts[-1]}L"


def _check_data_parallel(prediction: LargePrediction, name: str) -> None:
    layout = prediction.layout
    _refuse_if(layout.pipeline > 1, f"{name} has no pipeline without changed code")
    _refuse_if(layout.expert > 1, f"{name} has no expert groups without changed code")
    _refuse_if(
        layout.recompute == "selective",
        f"{name} does not recompute selectively; --recompute full works",
    )


def _write_deepspeed(prediction: LargePrediction, training: LargeTraining) -> str:
    layout, precision = prediction.layout, prediction.precision
    _check_data_parallel(prediction, "DeepSpeed")
    _refuse_if(layout.tensor * layout.context > 1, "this line divides only ZeRO's states")
    _refuse_if(
        precision not in ("bf16", "fp16", "fp32", "tf32"),
        f"DeepSpeed does not train in {precision}",
    )
    _refuse_if(
        training.lora_rank or training.qlora_rank,
        "DeepSpeed leaves adapters to train.py",
    )
    _refuse_if(
        training.offload == "parameters" and layout.zero < 3,
        "DeepSpeed offloads parameters with zero=3",
    )
    zero: dict[str, Any] = {"stage": layout.zero}
    if training.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if training.offload == "parameters":
        zero["offload_param"] = {"device": "cpu"}
    if layout.shard and layout.shard < layout.data and layout.zero >= 1:
        _refuse_if(layout.zero < 3, "DeepSpeed divides in smaller groups with zero=3")
        zero["mics_shard_size"] = layout.shard
    config = {"zero_optimization": zero}
    if precision in ("bf16", "fp16"):
        config[precision] = {"enabled": True}
    steps = layout.global_batch // (layout.micro_batch * layout.data)
    sizes = {
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": steps,
    }
    again = " --gradient_checkpointing true" if layout.recompute == "full" else ""
    return (
        f"deepspeed --num_nodes {prediction.nodes} --num_gpus {prediction.gpus_per_node} train.py "
        f"--deepspeed_config '{json.dumps(config | sizes)}'{again}"
    )


def _write_accelerate(prediction: LargePrediction, training: LargeTraining) -> str:
    layout, precision = prediction.layout, prediction.precision
    _check_data_parallel(prediction, "accelerate")
    _refuse_if(precision in ("mxfp8", "nvfp4"), f"accelerate does not train in {precision}")
    _refuse_if(layout.zero == 1, "FSDP has no ZeRO stage 1; --strategy fsdp finds a layout")
    _refuse_if(training.offload == "optimizer", "FSDP offloads all states or none")
    _refuse_if(
        (training.offload or layout.tensor * layout.context > 1) and layout.zero < 2,
        "accelerate does this only with FSDP",
    )
    mixed = {"fp32": "no", "tf32": "no", "fp8": "fp8 --fp8_backend ao"}.get(precision, precision)
    steps = layout.global_batch // (layout.micro_batch * layout.data)
    options = [
        f"--num_machines {prediction.nodes} --num_processes {prediction.gpus}",
        f"--mixed_precision {mixed} --gradient_accumulation_steps {steps}",
    ]
    if layout.zero >= 2:
        options += _write_accelerate_fsdp(prediction, training)
    elif prediction.gpus > 1:
        options.append("--multi_gpu")
    script = f"train.py --per_device_train_batch_size {layout.micro_batch}"
    if rank := training.lora_rank or training.qlora_rank:
        # the options of TRL's script for fine-tuning
        script = script.replace("train.py", "trl/scripts/sft.py")
        script += f" --use_peft --lora_r {rank} --lora_target_modules all-linear"
        script += " --load_in_4bit" if training.qlora_rank else ""
    if layout.recompute == "full" and layout.zero < 2:
        script += " --gradient_checkpointing true"
    return f"accelerate launch {' '.join(options)} {script}"


def _write_accelerate_fsdp(prediction: LargePrediction, training: LargeTraining) -> list[str]:
    layout = prediction.layout
    options = [
        f"--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward {'true' if layout.zero == 3 else 'false'}"
    ]
    if layout.recompute == "full":
        options.append("--fsdp_activation_checkpointing true")
    if training.offload:
        options.append("--fsdp_offload_params true")
    replicas = layout.data * layout.context
    shard = layout.shard or replicas
    if layout.tensor > 1 or layout.context > 1 or shard < replicas:
        _refuse_if(
            shard % layout.context,
            f"accelerate's shards are multiples of cp={layout.context}",
        )
        options.append(
            f"--use_parallelism_config --parallelism_config_tp_size {layout.tensor} "
            f"--parallelism_config_cp_size {layout.context} "
            f"--parallelism_config_dp_shard_size {shard // layout.context} "
            f"--parallelism_config_dp_replicate_size {replicas // shard}"
        )
    return options
