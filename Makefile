PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: report test faults lint quick-report clean

report: $(VENV)/installed
	$(BIN)/captionbench report

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2

# every planted fault must be caught by the test named for it
faults: $(VENV)/installed
	$(BIN)/python -m tests.faults

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict reference
	$(BIN)/mypy torch_impl benchmarks

quick-report: $(VENV)/installed
	$(BIN)/captionbench report --quick

# torch on its own first: an index may hold its wheel where it holds no other pinned one
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[vision,dev]'
	touch $@

clean:
	rm -rf $(VENV)
