"""The tables of `gpuyard catalog` that predictions use: GPUs, machines, CPUs, links, and models."""

from gpuyard.cli.catalog.view import View


def gpus() -> View:
    """List GPUs: memory, dense peaks by precision, power, PCIe, links to other GPUs, and software support.

    Example: gpuyard catalog gpus a100-sxm4-80gb
    """
    from gpuyard.catalog import gpus as table
    from gpuyard.catalog.hardware import find_end_of_life

    return View(
        "GPUs (TFLOP/s are dense peaks from the datasheets)",
        table(),
        {
            "id": lambda g: g.id,
            "GB": lambda g: f"{g.memory_gb:g}",
            "GB/s": lambda g: f"{g.memory_bandwidth_gb_per_second:,.0f}",
            "fp32": lambda g: g.fp32_tflops,
            "tf32": lambda g: g.tf32_tflops,
            "fp16": lambda g: g.fp16_tflops,
            "bf16": lambda g: g.bf16_tflops,
            "fp8": lambda g: g.fp8_tflops,
            "W": lambda g: f"{g.board_watts:.0f}",
            "PCIe": lambda g: f"{g.pcie_generation}.0 x{g.pcie_lanes}",
            "links": lambda g: (
                f"{g.peer_links} × {g.peer_link}{' bridge' if g.nvlink_bridge else ''}"
                if g.peer_link
                else ""
            ),
            "P2P": lambda g: "yes" if g.pcie_peer_to_peer else "no",
            "CUDA": lambda g: end.cuda_range if (end := find_end_of_life(g)) else "",
            "date": lambda g: g.date,
        },
        drop_first=("date", "P2P", "fp8", "links", "PCIe", "bf16", "tf32", "GB/s"),
        gpu=lambda g: g.id,
    )


def machines() -> View:
    """List machines: GPUs, topology, network cards, and power.

    Example: gpuyard catalog machines dgx-a100
    """
    from gpuyard.catalog import machines as table

    return View(
        "Machines",
        table(),
        {
            "id": lambda m: m.id,
            "GPUs": lambda m: f"{m.gpus} × {m.gpu}",
            "topology": lambda m: m.topology,
            "network": lambda m: f"{m.nics} × {m.nic_link}" if m.nic_link else "",
            "W": lambda m: f"{m.max_watts:,.0f}" if m.max_watts else "",
            "date": lambda m: m.date,
        },
        drop_first=("date", "W", "network"),
        gpu=lambda m: m.gpu,
    )


def cpus() -> View:
    """List CPUs: PCIe lanes, PCIe generation, and sockets; `gpuyard topo lanes` shows what fits them.

    Example: gpuyard catalog cpus epyc-7742
    """
    from gpuyard.catalog.hardware import cpus as table

    return View(
        "CPUs, with the PCIe lanes that reach slots",
        table(),
        {
            "id": lambda c: c.id,
            "family": lambda c: c.family,
            "cores": lambda c: c.cores,
            "PCIe": lambda c: f"{c.pcie_generation}.0",
            "lanes": lambda c: c.pcie_lanes,
            "dual-socket lanes": lambda c: c.dual_socket_lanes,
            "sockets": lambda c: c.max_sockets,
            "date": lambda c: c.date,
        },
        drop_first=("family", "date", "cores"),
    )


def links() -> View:
    """List links: raw and effective rate in one direction, and latency.

    Example: gpuyard catalog links infiniband-edr
    """
    from gpuyard.catalog import links as table

    return View(
        "Links, one direction",
        table(),
        {
            "id": lambda x: x.id,
            "raw GB/s": lambda x: f"{x.raw_gb_per_second:g}",
            "effective GB/s": lambda x: f"{x.effective_gb_per_second:g}",
            "latency µs": lambda x: f"{x.latency_us:g}",
            "protocol": lambda x: x.protocol,
            "basis": lambda x: x.basis,
            "date": lambda x: x.date,
        },
        drop_first=("date", "protocol"),
    )


def models() -> View:
    """List models: parameters, gradient bytes by layer in backward order, and FLOPs and bytes per sample.

    Example: gpuyard catalog models resnet50 --json
    """
    from gpuyard.catalog import models as table
    from gpuyard.units import format_bytes

    return View(
        "Models (FLOPs and bytes per sample; activations are kept for backward)",
        table(),
        {
            "id": lambda m: m.id,
            "parameters": lambda m: f"{m.parameters:,}",
            "gradients": lambda m: format_bytes(m.gradient_bytes),
            "layers": lambda m: len(m.layers),
            "GFLOP forward": lambda m: f"{m.forward_flops / 1e9:,.2f}",
            "activations fp32": lambda m: format_bytes(m.activation_bytes),
            "fp16, bf16": lambda m: format_bytes(m.activation_bytes_autocast),
            "input": lambda m: format_bytes(m.input_bytes),
            "sample": lambda m: m.sample,
        },
        drop_first=("sample", "input", "layers", "fp16, bf16", "activations fp32"),
    )


def transformers() -> View:
    """List transformers by shape: layers, widths, heads, and experts, for predictions of large models.

    Example: gpuyard catalog transformers llama-3-8b --json
    """
    from gpuyard.catalog.transformers import transformers as table

    return View(
        "Transformers by shape",
        table(),
        {
            "id": lambda m: m.id,
            "billion parameters": lambda m: f"{m.parameters_billion:,.4g}",
            "layers": lambda m: m.shape.layers,
            "hidden": lambda m: m.shape.hidden,
            "heads": lambda m: m.shape.heads,
            "KV heads": lambda m: m.shape.kv_heads or m.shape.heads,
            "ffn": lambda m: m.shape.ffn,
            "vocabulary": lambda m: f"{m.shape.vocabulary:,}",
            "experts": lambda m: (
                f"{m.shape.active_experts} of {m.shape.experts}" if m.shape.experts else ""
            ),
            "attention": lambda m: m.shape.attention,
            "date": lambda m: m.date,
        },
        drop_first=("date", "attention", "vocabulary", "KV heads", "ffn"),
    )


def published() -> View:
    """List the published results of Lambda, MLPerf, and TensorFlow; filter them with --model and --gpu.

    Example: gpuyard catalog published --model resnet50 --gpu v100
    """
    from gpuyard.catalog.published import published_figures as table

    return View(
        "Published training speeds",
        table(),
        {
            "id": lambda f: f.id,
            "model": lambda f: f.model,
            "GPUs": lambda f: f"{f.gpus} × {f.gpu or '?'}",
            "batch/GPU": lambda f: f"{f.batch_per_gpu:g}",
            "precision": lambda f: f.precision,
            "samples/s": lambda f: f"{f.samples_per_second:,.1f}",
            "per GPU": lambda f: "" if f.per_gpu is None else f"{f.per_gpu:,.1f}",
            "series": lambda f: f.series,
            "date": lambda f: f.date,
        },
        drop_first=("date", "series", "batch/GPU", "samples/s", "id"),
        gpu=lambda f: f.gpu,
    )


def staged_copies() -> View:
    """List the published share of PCIe bandwidth that GPUs without peer access reach.

    Example: gpuyard catalog staged-copies rtx-4090-nccl-814
    """
    from gpuyard.catalog.hardware import staged_copies as table
    from gpuyard.units import format_share

    return View(
        "Copies between two GPUs through host memory, GB/s (share of the slot in each direction)",
        table(),
        {
            "id": lambda c: c.id,
            "GPUs": lambda c: f"{c.gpus} × {c.gpu}",
            "slot": lambda c: c.link,
            "one way": lambda c: f"{c.one_way_gb_per_second:g} ({format_share(c.one_way_share)})",
            "both ways": lambda c: (
                f"{c.both_ways_gb_per_second:g} ({format_share(c.both_ways_share)})"
                if c.both_ways_share
                else ""
            ),
            "peer": lambda c: c.peer_gb_per_second,
            "date": lambda c: c.date,
        },
        drop_first=("date", "peer", "slot"),
        gpu=lambda c: c.gpu,
    )
