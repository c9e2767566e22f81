# `make study` and `make test` install everything that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
TOOLS := $(VENV)/.tools
SOAK := $(VENV)/.soak
INSTALL := $(BIN)/pip install --quiet --require-hashes

.DEFAULT_GOAL := help
.PHONY: help study test soak check format docs schemas reference bench clean system-packages soak-packages

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Every package is pinned with its hashes. PyTorch's CPU build, if pip finds it, needs no CUDA libraries.
$(RUNTIME): pyproject.toml requirements/train.txt requirements/torch-cpu.txt requirements/torch-cuda.txt
	@sh scripts/make-venv.sh $(PYTHON) $(VENV)
	@$(INSTALL) -r requirements/torch-cpu.txt 2>/dev/null || $(INSTALL) -r requirements/torch-cuda.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(TOOLS): $(RUNTIME) requirements/dev.txt
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

$(SOAK): $(TOOLS) requirements/soak.txt
	@$(INSTALL) -r requirements/soak.txt
	@touch $@

study: $(RUNTIME) ## Train the two spoken-digit models here and write the example report.
	@$(BIN)/gpuyard study examples/spoken-digits.study.yaml --output-dir study

test: $(TOOLS) system-packages ## Install what the tests need and run all of them.
	@sh scripts/run-tests.sh $(BIN)/pytest

soak: $(SOAK) soak-packages ## Run the long tests: 200 kills at random times, faults of Slurm and Kubernetes, the wheel, and more random examples.
	@$(BIN)/pytest -n 2 --dist loadgroup -m 'soak or hypothesis' --hypothesis-profile=soak --timeout=3600

check: $(TOOLS) docs ## Check formatting, lint, types, layers, and the documentation's links.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

docs: $(TOOLS) ## Build the documentation into site/, which also works from disk.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(TOOLS) ## Format the code and fix what lint can fix.
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

schemas: $(RUNTIME) ## Regenerate the JSON Schemas of the specs.
	@for name in workload cluster study offers plan site sweep job deployment; do $(BIN)/gpuyard schema $$name > schemas/$$name.schema.json; done

reference: $(RUNTIME) ## Regenerate the reference pages of the documentation.
	@$(BIN)/python scripts/write_reference.py

bench: $(RUNTIME) ## Run every benchmark.
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

system-packages: ## Install the Debian packages that some tests need (root or sudo).
	@sh scripts/install-system-packages.sh

soak-packages: $(SOAK) ## Also install the packages of the long tests, and build Kubernetes and Horovod once.
	@sh scripts/install-system-packages.sh soak
	-@sh scripts/build-kubernetes.sh >/dev/null
	-@$(BIN)/gpuyard horovod install

clean: ## Remove everything that make created.
	rm -rf $(VENV) study dist build site
