# Two commands on a fresh machine: `make demo` and `make test`. `make help` lists the others.
#   make demo PROMPT="…"        another prompt        make PYTHON=python3.12 …   another Python
#   make demo ARGS="--help"     flags of the demo     make test ARGS="-k tree"   flags of pytest

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
PROMPT ?=
ARGS ?=

BIN := $(VENV)/bin
ALL_STAMP := $(VENV)/.outrider-all
DEV_STAMP := $(VENV)/.outrider-dev

# `value` and `unexport` keep make from reading a $ in the prompt; as a variable the shell does not
# read it either. Only the command line counts: some shells have a PROMPT of their own.
unexport PROMPT
export DEMO_PROMPT = $(if $(filter command,$(origin PROMPT)),$(value PROMPT))
export PYTHON VENV PIP_ARGS
# Thread pools that spin while they wait take the cores away from the other services.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test install lint docs constraints stubs clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

demo: $(ALL_STAMP) ## Answer a prompt with drafts and without, and compare (PROMPT="…")
	@$(BIN)/outrider demo $(ARGS) $${DEMO_PROMPT:+-- "$$DEMO_PROMPT"}

test: $(DEV_STAMP) ## Run the whole test suite (ARGS="-k tree")
	@$(BIN)/python -m outrider.models.packaged
	@$(BIN)/python -m pytest $(ARGS)

install: $(ALL_STAMP) ## Install everything into .venv
	@echo "outrider: installed; run $(BIN)/outrider --help"

lint: $(DEV_STAMP) ## Check format, types, imports, protos and spelling
	@$(BIN)/buf format -d --exit-code
	@$(BIN)/buf lint
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

docs: $(DEV_STAMP) ## Build the documentation into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

constraints: $(DEV_STAMP) ## Write constraints.txt anew
	@scripts/constraints.sh

stubs: $(DEV_STAMP) ## Generate outrider/v1 from protos/
	@$(BIN)/python scripts/generate_stubs.py

clean: ## Remove .venv and every cache below this folder (fetched models stay in the user's cache)
	@rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written when its installation is complete, so that an interrupted one is done again.
$(DEV_STAMP): pyproject.toml constraints.txt
	@scripts/set_up.sh dev
	@touch $@ $(ALL_STAMP)

$(ALL_STAMP): pyproject.toml constraints.txt
	@scripts/set_up.sh all
	@touch $@
