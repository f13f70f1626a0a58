# The whole developer interface. Every target sets up what it needs, as an ordinary user: .venv here, and real
# servers in a cache folder (deploy/local/README.md). PYTHON=... picks the Python, 3.11 or newer.
SHELL := /bin/bash
export PYTHON
BIN := .venv/bin
.PHONY: demo test lint format bench papers chaos attacks fuzz services constraints clean

demo: .venv/.demo .venv/.kernels ## everything on this machine: people who click, worker, node
	$(BIN)/omdml demo

test: .venv/.dev .venv/.kernels ## flat tests first, then those that need Kafka and Redis, then those that kill processes
	$(BIN)/python -m pytest omdml streams workers tests --ignore=tests/integration --ignore=tests/fault
	$(BIN)/python -m pytest tests/integration tests/fault

lint: .venv/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy omdml streams workers deploy

format: .venv/.dev
	$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

MODULE_bench := benchmarks
MODULE_papers := benchmarks.papers
MODULE_chaos := tests.fault.chaos
MODULE_attacks := tests.fault.attacks
bench papers chaos attacks: .venv/.dev .venv/.kernels ## what is fast and good; the papers' tables; what faults cost; what attackers can do
	$(BIN)/python -m $(MODULE_$@)

fuzz: .venv/.fuzz .venv/.kernels ## decoders and loaders, FUZZ_S=60 seconds each
	$(BIN)/python -m tests.fuzz

services: .venv/.dev ## a real Kafka, with a topic, and a real Valkey until Ctrl-C
	$(BIN)/python -m deploy.local up kafka valkey --topic feedback

constraints:
	deploy/local/setup.sh constraints
.venv/.kernels: $(wildcard omdml/kernels/*.py) # numba looks only at a function's own file, not at those it calls
	@rm -f omdml/kernels/__pycache__/*.nb[ci] && touch $@

.venv/.demo .venv/.dev .venv/.fuzz: pyproject.toml constraints.txt
	@deploy/local/setup.sh $(@F:.%=%)

clean:
	rm -rf .venv .venv.lock build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
