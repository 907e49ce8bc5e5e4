# The everyday commands. Everything is installed into .venv by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Real Kubernetes components for `make test-real`: built once for each version, or where they are already.
KUBE ?= v1.36.3
CACHE := $(HOME)/.cache/muster
ASSETS := $(or $(KUBEBUILDER_ASSETS),$(CACHE)/kubernetes-$(KUBE))

.PHONY: demo test check format bench conformance test-real test-upgrade assets clean

demo: $(STAMP)
	@$(BIN)/muster demo

test: $(STAMP)
	$(BIN)/pytest -n 2

check: $(STAMP)
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

bench: $(STAMP)
	$(BIN)/muster bench

conformance: $(STAMP)
	$(BIN)/python tests/conformance/run.py tests/conformance/data/*.jsonl.gz

test-real: $(STAMP)
	$(if $(KUBEBUILDER_ASSETS),,hack/build-kube $(ASSETS) $(KUBE))
	KUBEBUILDER_ASSETS=$(ASSETS) MUSTER_REAL=1 $(BIN)/pytest -rs tests/real

# Groups across an upgrade: builds both releases.
test-upgrade: $(STAMP)
	for kube in v1.36.3 v1.37.2; do hack/build-kube $(CACHE)/kubernetes-$$kube $$kube || exit; done
	MUSTER_REAL=1.36,1.37 $(BIN)/pytest -rs tests/real/test_real_upgrade.py

assets:
	@echo $(ASSETS)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Muster needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
