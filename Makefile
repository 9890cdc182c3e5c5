# Every target sets up what it needs: a virtual environment in .venv with pinned versions (constraints.txt).
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
MODEL ?= Qwen/Qwen2.5-7B-Instruct
GPU ?= h100-sxm
EVIDENCE := $(addprefix evidence/,published.jsonl memory_reports.jsonl decode.jsonl training.jsonl rl.jsonl)

.PHONY: demo test check backtest bench long format clean

demo: .venv/plain  ## the main job: the algorithms side by side, one plan, one derivation
	$(BIN)/headcount compare --model $(MODEL) --gpu $(GPU)
	$(BIN)/headcount plan configs/plan/grpo-7b-checker.toml || test $$? -eq 3
	$(BIN)/headcount explain configs/plan/grpo-7b-checker.toml --row update/policy/logits

test: check  ## format, lint, types, floors, then the tests (`make long`: and the whole ground-truth grid)
	$(BIN)/python -m pytest --numprocesses 2 -m "not long"

check: .venv/tested
	scripts/check

backtest: .venv/plain  ## predicted against published, on the rows that the repository carries
	$(BIN)/headcount backtest $(EVIDENCE)

bench: .venv/plain
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/search.py

long: .venv/tested  ## the whole grid of tests/ground_truth
	$(BIN)/python -m pytest --numprocesses 2

format: .venv/tested
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv

# Each stamp is newer than what it was made from, so a second run installs nothing.
.venv/made:
	$(PYTHON) -c 'import sys; sys.exit("headcount needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv || { apt-get update && apt-get install --yes python3-venv && $(PYTHON) -m venv .venv; }
	touch $@

.venv/plain: .venv/made pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/tested: .venv/plain
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[truth,fit,charts,dev]'
	touch $@
