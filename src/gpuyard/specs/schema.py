"""JSON Schemas of all specs, for editors and for programs that write specs."""

import json

from gpuyard.errors import UnknownName
from gpuyard.specs.base import Spec
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.job import JobSpec
from gpuyard.specs.offers import Offers
from gpuyard.specs.plan import Plan
from gpuyard.specs.site import Site
from gpuyard.specs.study import Study
from gpuyard.specs.sweep import SweepFile
from gpuyard.specs.workload import Workload

SPECS: dict[str, type[Spec]] = {
    "workload": Workload,
    "cluster": Cluster,
    "study": Study,
    "plan": Plan,
    "offers": Offers,
    "site": Site,
    "sweep": SweepFile,
    "job": JobSpec,
    "deployment": Deployment,
}


def json_schema(name: str) -> str:
    """Return the schema as text, identical every time."""
    if name not in SPECS:
        raise UnknownName("spec", name, SPECS)
    schema = SPECS[name].model_json_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
