# make demo: the whole pipeline on bundled data and models, in a few minutes on a CPU
# make test: the test suite    make lint: style and types    make slow: the slow tests as well

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lint format clean

demo: $(VENV)/.runtime
	$(BIN)/arflow-eval demo

test: $(VENV)/.develop
	$(BIN)/python -m pytest

slow: $(VENV)/.develop
	$(BIN)/python -m pytest -m "slow or not slow"

lint: $(VENV)/.develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.develop
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("found Python %d.%d; expected 3.11 or newer; run: make PYTHON=python3.11 $(MAKECMDGOALS)" % v[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "found no venv module for $(PYTHON); expected one; on Debian and Ubuntu run: apt install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.develop: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,lerobot,video]"
	touch $@
