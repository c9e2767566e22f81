"""Measure the seconds to design a room of 1,000 servers with its three-tier network: the slower of two designs."""

import json
import time

from gpuyard.catalog.specfiles import known_names
from gpuyard.facilities.design import design_facility
from gpuyard.report.answers.facility.room_document import design_document
from gpuyard.specs import Cluster


def build_clusters() -> list[Cluster]:
    machines = [
        {"machine": "dgx-h100", "network": {"link": "infiniband-ndr", "rails": 8}},
        {"machine": "supermicro-4029gp-trt", "network": {"link": "infiniband-hdr"}},
    ]
    return [
        Cluster.model_validate(
            {"name": "1,000 servers", "nodes": 1000, **machine}, context=known_names()
        )
        for machine in machines
    ]


def main() -> None:
    # load imports and tables before the timer starts
    design_facility(build_clusters()[1].model_copy(update={"nodes": 4}))
    seconds = []
    for cluster in build_clusters():  # each once, because racks are cached
        start = time.perf_counter()
        document = design_document(design_facility(cluster))
        seconds.append(time.perf_counter() - start)
        print(f"{cluster.machine}: {len(document['racks'])} racks in {seconds[-1]:.2f} s")
    print(json.dumps({"name": "bench_facility", "value": round(max(seconds), 3), "unit": "s"}))


if __name__ == "__main__":
    main()
