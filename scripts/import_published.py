"""Convert the published tables to the package's data: one compact schema, and a reason for every skipped row.

    python scripts/import_published.py DIRECTORY

This script adds facts that the tables lack; `sources.toml` beside the data names their sources.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuyard.catalog import gpus as gpu_table
from import_held_out import build_held_out_tables
from import_paddle import convert_paddle
from import_stacks import convert_dlperf, convert_nvidia_examples

DATA = Path(__file__).parent.parent / "src/gpuyard/catalog/data/published"
COLUMNS = (
    "source", "framework", "series", "model", "gpu", "topology", "peer", "nodes", "gpus", "batch",
    "accumulate", "precision", "gradient_bits", "strategy", "network", "input_workers", "samples_per_second",
    "skip",
)  # fmt: skip
Row = dict[str, object]


def main(folder: Path) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Iterable[Row]] = {
        "tf_benchmarks_2017": convert_tensorflow(read(folder / "tf_benchmarks_2017.csv")),
        "pollux_t4": convert_pollux(read(folder / "pollux_t4_measured_steptimes.csv")),
        "lambda": convert_lambda(read(folder / "lambda_gpu_throughput_long.csv")),
        "mlperf": convert_mlperf(read(folder / "mlperf_resnet_bert_nvidia.csv")),
        "horovod": convert_horovod(),
        "dlperf": convert_dlperf(read(folder / "dlperf_v100_1to32.csv")),
        "nvidia_examples": convert_nvidia_examples(read(folder / "nvidia_dle_dgx1_dgx2_long.csv")),
        "paddle": convert_paddle(),
        **build_held_out_tables(),
    }
    for name, rows in tables.items():
        write(name, COLUMNS, rows)
    columns = ("series", "gpu", "nodes", "gpus", "size_bytes", "seconds")
    write("allreduce", columns, convert_all_reduce_sweeps(folder))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        next(lines)  # the source, kept in sources.toml
        return list(csv.DictReader(lines))


def write(name: str, columns: tuple[str, ...], rows: Iterable[Row]) -> None:
    rows = list(rows)
    constant = {
        column: str(rows[0].get(column, ""))
        for column in columns
        if len({str(row.get(column, "")) for row in rows}) == 1
    }
    varying = [column for column in columns if column not in constant]
    with (DATA / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        if any(constant.values()):
            cells = ", ".join(f"{key}={value}" for key, value in constant.items() if value)
            file.write(f"# every row: {cells}\n")
        out = csv.DictWriter(file, varying, restval="", extrasaction="ignore", lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    skipped = Counter(row["skip"] for row in rows if row.get("skip"))
    print(f"{name}: {len(rows)} rows, skipped {dict(skipped)}")


# The table's first line says how variables were updated; "replicated" without NCCL copies between
# the GPUs, which counts as an all-reduce here.
_TF_MODELS = {
    "InceptionV3": "inception-v3", "ResNet-50": "resnet50", "ResNet-152": "resnet152",
    "AlexNet": "alexnet", "VGG16": "vgg16",
}  # fmt: skip


def convert_tensorflow(rows: list[dict[str, str]]) -> Iterator[Row]:
    for row in rows:
        platform, model = row["platform"], row["model"]
        dgx = platform == "DGX-1"
        nccl = dgx and model in ("AlexNet", "VGG16")
        replicated = platform == "EC2 p2.8xlarge" and model.startswith("ResNet")
        gpus = int(row["num_gpus"])
        distributed = platform.endswith("distributed")
        nodes = max(1, gpus // 8) if distributed else 1
        yield {
            "source": f"TensorFlow 2017 {platform.split()[0]}",
            "framework": "tf-cnn-benchmarks",
            "series": f"{platform} {row['data']}",
            "model": _TF_MODELS[model],
            "gpu": "p100-sxm2-16gb" if dgx else "k80",
            "topology": "nvlink-hybrid-cube-mesh" if dgx else "dual-root",
            "peer": 1,
            "nodes": nodes,
            "gpus": gpus,
            "batch": row["batch_per_gpu"],
            "precision": "fp32",
            "gradient_bits": 32,
            "strategy": "distributed-replicated" if distributed else
                        "ddp" if nccl or replicated else "parameter-server",
            "network": "tcp 10 1" if distributed else "",
            "samples_per_second": row["images_per_s"],
        }  # fmt: skip


_POLLUX_MODELS = {
    "bert": "bert-base", "cifar10": "resnet18-cifar", "deepspeech2": "deepspeech2",
    "imagenet": "resnet50", "ncf": "neumf", "yolov3": "yolov3",
}  # fmt: skip


def convert_pollux(rows: list[dict[str, str]]) -> Iterator[Row]:
    for row in rows:
        gpus, nodes, batch = int(row["num_gpus"]), int(row["num_nodes"]), int(row["local_bsz"])
        seconds = float(row["step_time_s"])
        yield {
            "source": "Pollux",
            "framework": "pytorch-ddp",
            "series": row["model"],
            "model": _POLLUX_MODELS[row["model"]],
            "gpu": "t4",
            "topology": "workstation",
            "peer": 0,
            "nodes": nodes,
            "gpus": gpus,
            "batch": batch,
            "precision": "fp32",
            "gradient_bits": 32,
            "strategy": "ddp",
            "network": "tcp 50 1 5" if nodes > 1 else "",
            "samples_per_second": f"{gpus * batch / seconds:.5g}",
        }


_LAMBDA_MODELS = {
    "ssd": "ssd", "bert_base_squad": "bert-base", "bert_large_squad": "bert-large", "gnmt": "gnmt",
    "resnet50": "resnet50", "tacotron2": "tacotron2", "waveglow": "waveglow",
    "maskrcnn": "mask-rcnn", "transformerxlbase": "transformer-xl-base",
    "transformerxllarge": "transformer-xl-large",
}  # fmt: skip
# name without its vendor prefix → (GPU, topology with up to 4 GPUs, topology with 8)
_LAMBDA_GPUS = {
    "V100 32GB": ("v100-pcie-32gb", "dual-root", "dual-root"),
    "V100 16GB": ("v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", "nvlink-hybrid-cube-mesh"),
    "A100 40GB SXM4": ("a100-sxm4-40gb", "nvswitch", "nvswitch"),
    "A100 80GB SXM4": ("a100-sxm4-80gb", "nvswitch", "nvswitch"),
    "A100 80GB PCIe": ("a100-pcie-80gb", "workstation", "dual-socket"),
    "H100 80GB SXM5": ("h100-sxm5-80gb", "nvswitch", "nvswitch"),
    "H100 80GB PCIe Gen5": ("h100-pcie-80gb", "workstation", "dual-socket"),
    "H100 80GB PCIe": ("h100-pcie-80gb", "workstation", "dual-socket"),
    "RTX A6000": ("rtx-a6000", "workstation", "dual-socket"),
    "RTX A5000": ("rtx-a5000", "workstation", "dual-socket"),
    "RTX A4500": ("rtx-a4500", "workstation", "dual-socket"),
    "RTX 3090": ("rtx-3090", "workstation", "dual-socket"),
    "RTX 3080": ("rtx-3080", "workstation", "dual-socket"),
    "RTX 3070": ("rtx-3070", "workstation", "dual-socket"),
    "Quadro RTX 8000": ("quadro-rtx-8000", "workstation", "dual-socket"),
    "RTX Quadro 8000": ("quadro-rtx-8000", "workstation", "dual-socket"),
    "RTX Quadro 8000 NVLink": ("quadro-rtx-8000", "nvlink-pairs", "nvlink-pairs"),
    "Quadro RTX 6000": ("quadro-rtx-6000", "workstation", "dual-socket"),
    "Quadro RTX 5000": ("quadro-rtx-5000", "workstation", "dual-socket"),
    "Titan RTX": ("titan-rtx", "workstation", "dual-socket"),
    "GTX 1080Ti": ("gtx-1080-ti", "workstation", "dual-socket"),
    "A10": ("a10", "workstation", "dual-socket"),
}
_LAMBDA_VENDOR = re.compile(
    r"^(Lambda ?Cloud(?: — )?|Linode Cloud — |Dell |DellTexas |SMC |1CC |RAIDZ1 )\s*"
)
# machines whose one-GPU row has another spelling of the same GPU
_LAMBDA_SPELLINGS = {
    "RTX Quadro 8000": "Quadro RTX 8000",
    "RTX Quadro 8000 NVLink": "Quadro RTX 8000",
}
# Published units per training sample: tokens of a sentence pair, spectrogram frames of an LJSpeech utterance
# (6.57 s on average, 22,050 Hz, 256 samples per frame), audio samples of a WaveGlow segment.
_PER_SAMPLE = {"gnmt": 60.0, "tacotron2": 566.0, "waveglow": 8000.0}
# trained on filelists/ljs_audio_text_train_subset_625_filelist.txt
_SMALL_EPOCH = {"tacotron2": 625, "waveglow": 625}


def convert_lambda(rows: list[dict[str, str]]) -> Iterator[Row]:
    earlier: set[tuple[str, ...]] = set()
    one_gpu_rows = {
        (r["set"], r["base"], r["model"], r["precision"]): r for r in rows if r["num_gpu"] == "1"
    }
    for row in rows:
        key = (row["base"], row["model"], row["precision"])
        system = _LAMBDA_GPUS.get(_LAMBDA_VENDOR.sub("", row["base"]))
        gpus = int(row["num_gpu"])
        baseline = one_gpu_rows.get(
            (row["set"], _LAMBDA_SPELLINGS.get(row["base"], row["base"]), *key[1:])
        )
        identity = (*key, row["num_gpu"], row["throughput"], row["global_batch"])
        skip = ""
        if identity in earlier:
            skip = "published twice: the same row is in an earlier set"
        elif row["flag"]:
            skip = f"flagged as wrong in the table: {row['flag']}"
        elif row["model"] == "ncf":
            skip = "neither the batch of a GPU nor the negative samples are stated for NCF"
        elif system is None:
            skip = "a laptop GPU or one that the catalog does not have"
        elif baseline is None:
            skip = "no one-GPU row of this system is published"
        elif not float(row["global_batch"] or 0) or not float(row["throughput"] or 0):
            skip = "no batch or no throughput is stated"
        elif row["model"] in _SMALL_EPOCH and _SMALL_EPOCH[row["model"]] < 4 * float(
            row["global_batch"]
        ):
            skip = "fewer than 4 steps in its epoch of 625 utterances: start-up is what was timed"
        elif float(row["global_batch"]) != gpus * float(baseline["global_batch"] or 0):
            skip = "its batch a GPU differs from that of its one-GPU row"
        earlier.add(identity)
        gpu, small, large = system or ("", "", "")
        half = row["precision"] == "fp16"
        precision = row["precision"]
        if gpu and not half and gpu_table().get(gpu).tf32_tflops:
            precision = "tf32"
        ampere_with_peers = row["set"] == "v0" or "H100" in row["base"]
        exchanges = not row["model"].startswith("transformerxl")
        width = (
            16 if half and row["model"] in ("bert_base_squad", "bert_large_squad", "gnmt") else 32
        )
        yield {
            "source": f"Lambda {row['set']}",
            "framework": "pytorch-ddp",
            "series": f"{row['set']} {_LAMBDA_SPELLINGS.get(row['base'], row['base'])}",
            "model": _LAMBDA_MODELS.get(row["model"], row["model"]),
            "gpu": gpu,
            "topology": large if gpus > 4 else small,
            "peer": int(ampere_with_peers),
            "nodes": 1,
            "gpus": gpus,
            "batch": f"{float(row['global_batch'] or 0) / gpus:g}",
            "precision": precision,
            "gradient_bits": width,
            "strategy": "ddp" if exchanges else "none",
            "network": "",
            "samples_per_second": f"{float(row['throughput'] or 0) / _PER_SAMPLE.get(row['model'], 1):.5g}",
            "skip": skip,
        }


_MLPERF_GPUS = (
    ("H100-SXM", "h100-sxm5-80gb"), ("H100-PCIe", "h100-pcie-80gb"), ("H200", "h200-sxm5-141gb"),
    ("A100-SXM4-40GB", "a100-sxm4-40gb"), ("A100-SXM-40GB", "a100-sxm4-40gb"),
    ("A100-SXM", "a100-sxm4-80gb"), ("A100-PCIe-80GB", "a100-pcie-80gb"),
    ("A100-PCIE-80GB", "a100-pcie-80gb"), ("A100 - PCIe - 80 GB", "a100-pcie-80gb"),
    ("A100-PCIE-40GB", "a100-pcie-40gb"), ("A100-PCIe-40GB", "a100-pcie-40gb"), ("A30", "a30"),
    ("V100-SXM2-32GB", "v100-sxm2-32gb"), ("V100-SXM2-16GB", "v100-sxm2-16gb"),
    ("V100-SXM3-32GB", "v100-sxm3-32gb"), ("L40S", "l40s"), ("L40", "l40"), ("L4", "l4"),
)  # fmt: skip
# submitters with enough rows to be a source of their own; all others are one source
_MLPERF_SUBMITTERS = ("Dell", "DellEMC", "NVIDIA", "HPE")
_PORTS = re.compile(r"(\d+)\s*x\s[^,+]*?(\d{2,3})\s*Gb", re.IGNORECASE)
_RDMA = re.compile(r"\bIB\b|infiniband|\bHDR|\bEDR|\bNDR|omni-path|roce", re.IGNORECASE)


def parse_mlperf_network(text: str) -> str:
    """Find the compute network: `Storage: 2x …, Compute: 8x ConnectX-6 IB HDR 200Gb/Sec` → `rdma 200 8`."""
    if "ROCE2; Data bandwidth" in text:
        return "rdma 400 8"  # Oracle's BM.GPU.H100.8 has 8 ports of 400 Gbit/s
    parts = [p for p in re.split(r",|\+|;|and ", text) if _RDMA.search(p) or "EW" in p]
    compute = [p for p in parts if "ompute" in p or "EW" in p] or [
        p for p in parts if "torage" not in p and "anagement" not in p
    ]
    for part in compute:
        normalized = part.replace("Gbps", "Gb").replace(" Gb", "Gb").replace("(", " ")
        if match := _PORTS.search(normalized) or re.search(r"(\d)x?\s?BF3 (\d+)", part):
            return f"rdma {match[2]} {match[1]}"
    return ""


def convert_mlperf(rows: list[dict[str, str]]) -> Iterator[Row]:
    earlier: set[tuple[str, ...]] = set()
    usable: Counter[str] = Counter()
    converted: list[Row] = []
    for row in rows:
        gpu = next((id for part, id in _MLPERF_GPUS if part in row["accelerator"]), "")
        gpus, nodes = int(row["num_accel"] or 0), int(row["nodes"] or 0)
        per_node = int(row["accel_per_node"] or 0)
        network = parse_mlperf_network(row["host_networking"]) if nodes > 1 else ""
        model = {"resnet": "resnet50", "bert": "bert-large"}[row["benchmark"]]
        rate = row["derived_samples_per_s"]
        identity = (row["org"], row["system"].split("_ngc")[0], row["benchmark"], rate)
        skip = ""
        if not rate:
            skip = "no rate follows from the log"
        elif not nodes or not gpus:
            skip = "the numbers of machines and GPUs are not stated"
        elif identity in earlier:
            skip = "published twice: the same result is in an earlier round"
        elif not gpu:
            skip = "a GPU that the catalog does not have"
        elif row["division"] != "closed":
            skip = "open division: another model or batch schedule"
        elif nodes > 1 and not network:
            skip = "the network between the machines is not stated"
        elif not row["global_batch"].isdigit():
            skip = "no single batch is stated"
        earlier.add(identity)
        series = f"{row['round']} {row['org']} {row['accelerator']} × {per_node}"
        converted.append({
            "source": f"MLPerf {row['org'] if row['org'] in _MLPERF_SUBMITTERS else 'others'}",
            "framework": "apex" if model == "bert-large" else "horovod",
            "series": series,
            "model": model,
            "gpu": gpu,
            "topology": "nvswitch" if re.search("sxm[345]", gpu) else
                        "nvlink-hybrid-cube-mesh" if "sxm" in gpu else
                        "workstation" if per_node <= 4 else "dual-root",
            "peer": 1,
            "nodes": nodes,
            "gpus": gpus,
            "batch": f"{int(row['global_batch']) / max(gpus, 1):g}" if row["global_batch"].isdigit() else "",
            "precision": "fp16",
            "gradient_bits": 16,
            # --dwu-overlap-reductions is off by default; among the submitted BERT configurations, only
            # NVIDIA's packed runs on 96 machines turn it on
            "strategy": "ddp-after-backward" if model == "bert-large" else "ddp",
            "network": network,
            "samples_per_second": rate or 0,
            "skip": skip,
        })  # fmt: skip
        if not skip:
            usable[f"{series} {model}"] += 1
    for output in converted:
        if not output["skip"] and usable[f"{output['series']} {output['model']}"] == 1:
            output["skip"] = "alone in its series: no smaller system of this submitter and round"
        yield output


# The paper gives efficiencies. The throughput of one GPU is the one-GPU Pascal row of TensorFlow's own benchmark
# of the same program; ResNet-101 is interpolated between ResNet-50 and ResNet-152 by FLOPs.
_HOROVOD_ONE_GPU = {"inception-v3": 142.0, "resnet101": 129.4, "vgg16": 154.0}
_HOROVOD = (
    ("parameter server, TCP", "parameter-server", 128, "tcp 25 1", ("inception-v3", "resnet101"), 0.50),
    ("Horovod, TCP", "horovod", 128, "tcp 25 1", ("inception-v3", "resnet101"), 0.88),
    ("Horovod, RDMA", "horovod", 128, "rdma 25 1", ("inception-v3", "resnet101"), 0.91),
    ("Horovod, RoCE", "horovod", 512, "rdma 25 1", ("inception-v3", "resnet101"), 0.90),
    ("Horovod, RoCE", "horovod", 512, "rdma 25 1", ("vgg16",), 0.68),
)  # fmt: skip


def convert_horovod() -> Iterator[Row]:
    common: Row = {
        "source": "Horovod paper", "framework": "horovod", "gpu": "p100-pcie-16gb", "topology": "workstation",
        "peer": 1, "batch": 64, "precision": "fp32", "gradient_bits": 32,
    }  # fmt: skip
    for series, strategy, gpus, network, models, efficiency in _HOROVOD:
        for model in models:
            one_gpu = _HOROVOD_ONE_GPU[model]
            shared = common | {"series": f"{series} {gpus}", "model": model, "strategy": strategy}
            yield shared | {"nodes": 1, "gpus": 1, "samples_per_second": one_gpu}
            yield shared | {
                "nodes": gpus // 4, "gpus": gpus, "network": network,
                "samples_per_second": f"{efficiency * gpus * one_gpu:.5g}",
            }  # fmt: skip
    for case, reason in (
        ("VGG-16 is 30% faster over RDMA", "a ratio of two multi-GPU figures, no throughput"),
        ("ResNet-101 on 16 GPUs, 1656.82 images/s", "no one-GPU figure of that machine"),
        ("8 V100 as 2 × 4, ResNet-50", "no one-GPU figure of that machine"),
        ("tensor fusion up to 65% faster", "no model and no number of GPUs"),
    ):
        yield {"series": case, "skip": reason}


_SIZES = [2**i * 2**20 for i in range(11)] + [25 * 2**20, 100 * 2**20]


def convert_all_reduce_sweeps(folder: Path) -> Iterator[Row]:
    for row in read(folder / "nccl_allreduce_v100_a100_2to8.csv"):
        if int(row["bytes"]) in _SIZES:
            gpu = {"v100": "v100-sxm2-16gb", "a100": "a100-sxm4-40gb"}[row["gpu"]]
            yield {
                "series": f"vTrain {row['gpu']}", "gpu": gpu, "nodes": 1, "gpus": row["num_gpus"],
                "size_bytes": row["bytes"], "seconds": f"{float(row['time_ns']) * 1e-9:.5g}",
            }  # fmt: skip
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for row in read(folder / "allreduce_sweeps_stas.csv"):
        if row["set"] != "B200":
            continue  # the hardware of the other sweep is not named
        size = int(row["payload"][:-3]) * units[row["payload"][-3:]]
        for nodes, column in ((1, "busbw_1node"), (4, "busbw_4node")):
            k = 8 * nodes
            seconds = size * 2 * (k - 1) / k / (float(row[column]) * 1e9)
            yield {
                "series": "Bekman B200", "gpu": "b200-sxm", "nodes": nodes, "gpus": k,
                "size_bytes": size, "seconds": f"{seconds:.5g}",
            }  # fmt: skip
    for row in read(folder / "horovod_lisa_allreduce.csv"):
        if int(row["num_procs"]) > 1:
            yield {
                "series": "Lisa CPU", "gpu": "", "nodes": -(-int(row["num_procs"]) // 8),
                "gpus": row["num_procs"], "size_bytes": row["bytes"],
                "seconds": f"{float(row['mean_s']):.5g}",
            }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
