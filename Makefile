# `make study` and `make test` are all the set-up there is; everything they need, they install.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
TOOLS := $(VENV)/.tools
SOAK := $(VENV)/.soak

.DEFAULT_GOAL := help
.PHONY: help study test soak check format schemas bench clean system-packages soak-packages

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUNTIME): pyproject.toml requirements/train.txt
	@sh scripts/make-venv.sh $(PYTHON) $(VENV)
	@$(BIN)/pip install --quiet -r requirements/train.txt
	@$(BIN)/pip install --quiet -e '.[train,nvidia,lab]'
	@touch $@

$(TOOLS): $(RUNTIME) requirements/dev.txt
	@$(BIN)/pip install --quiet -r requirements/dev.txt
	@touch $@

$(SOAK): $(TOOLS) requirements/soak.txt
	@$(BIN)/pip install --quiet -r requirements/soak.txt
	@touch $@

study: $(RUNTIME) ## Train the two spoken-digit models here and write the example report.
	@$(BIN)/gpuyard study examples/spoken-digits.study.yaml --output study

test: $(TOOLS) system-packages ## Install what the tests need and run all of them.
	@$(BIN)/pytest -n 3 --dist loadgroup

soak: $(SOAK) soak-packages ## Run the long tests: 200 kills at random moments, faults of Slurm, the wheel, many more examples.
	@$(BIN)/pytest -n 2 --dist loadgroup -m 'soak or hypothesis' --hypothesis-profile=soak --timeout=3600

check: $(TOOLS) ## Formatting, lint, types and layers.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(TOOLS) ## Format the code and fix what lint can fix.
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

schemas: $(RUNTIME) ## Write the JSON Schemas of the specs again.
	@for name in workload cluster study offers plan site sweep job deployment; do $(BIN)/gpuyard schema $$name > schemas/$$name.schema.json; done

bench: $(RUNTIME) ## Run every benchmark.
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

system-packages: ## Install the Debian packages that some tests need (root or sudo).
	@sh scripts/install-system-packages.sh

soak-packages: ## The same, and those of the long tests.
	@sh scripts/install-system-packages.sh soak

clean: ## Remove what make made.
	rm -rf $(VENV) study dist build site
