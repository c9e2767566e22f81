"""Write the package's tables of published large-model runs in one format: `import_large.py SOURCES`.

SOURCES holds `large/llm_release.csv`, `large/llm_memory_release.csv`, `vtrain_one_node_a100.csv`, and
`megatron_seqsel.csv`. `large_more_runs.csv` and `large_more_memory.csv` beside this script add single figures of papers
and project pages. Rows without a shape or a value are left out.
"""

import csv
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "src/gpuyard/predictor/data"
VTRAIN = "github.com/VIA-Research/vTrain@f8dda84:data/ground_truth_single.csv"
SEQSEL = "arXiv 2205.05198, table 5"


def main() -> None:
    sources = Path(sys.argv[1])
    with (sources / "large/llm_release.csv").open(encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = list(reader.fieldnames or ())
        rows = [row for row in reader if row["value"] and row["hidden"]]
    rows += [
        {
            "source": "vtrain", "url_path": VTRAIN, "model": "gpt", "layers": row["num_layers"],
            "hidden": row["hidden size"], "heads": row["attention heads"],
            "kv_heads": row["attention heads"], "ffn": str(4 * int(row["hidden size"])),
            "vocab": "51200", "seq": row["sequence length"], "gpu": "a100-sxm4-80gb",
            "gpus": row["num_gpus"], "gpus_per_node": "8", "interconnect": "NVLink, one node",
            "framework": "Megatron-DeepSpeed", "tp": row["tensor parallelism"],
            "pp": row["pipeline parallelism"], "vp": "1", "cp": "1",
            "dp_or_fsdp": f"dp{row['data parallelism']}", "zero_stage": "0",
            "micro_batch": row["micro batch"], "global_batch": row["global batch"],
            "precision": "FP16", "recompute": "none (not stated)", "attention": "no flash (2022)",
            "metric": "step_time_s", "value": f"{float(row['iteration time (ms)']) / 1000:.6g}",
            "notes": "quality=B (unknown: recompute,attention)",
        }
        for row in read_plain(sources / "vtrain_one_node_a100.csv")
    ]  # fmt: skip
    rows += [
        {
            "source": "megatron-seqsel", "url_path": SEQSEL, "model": row["model"],
            "layers": row["layers"], "hidden": row["hidden"], "heads": row["heads"],
            "kv_heads": row["heads"], "ffn": str(4 * int(row["hidden"])), "vocab": "51200",
            "seq": "2048", "gpu": "a100-sxm4-80gb",
            "gpus": str(int(row["tensor"]) * int(row["pipeline"])), "gpus_per_node": "8",
            "interconnect": "8x200 Gb/s InfiniBand", "framework": "Megatron-LM",
            "tp": row["tensor"], "pp": row["pipeline"], "vp": row["interleave"], "cp": "1",
            "dp_or_fsdp": "dp1", "zero_stage": "0", "micro_batch": row["micro_batch"],
            "global_batch": row["global_batch"], "precision": "FP16",
            "recompute": "full" if row["recompute"] == "full" else "selective",
            "attention": "no flash (2022)", "metric": "step_time_s", "value": row["measured_s"],
            "notes": "quality=A",
        }
        for row in read_plain(sources / "megatron_seqsel.csv")
    ]  # fmt: skip
    here = Path(__file__).parent
    write(DATA / "large_runs.csv", columns, rows + read_plain(here / "large_more_runs.csv"))
    with (sources / "large/llm_memory_release.csv").open(encoding="utf-8") as file:
        memory = list(csv.DictReader(file))
    write(DATA / "large_memory.csv", columns, memory + read_plain(here / "large_more_memory.csv"))


def read_plain(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
