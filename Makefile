PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test report quick-report lint clean

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2

report: $(VENV)/installed
	$(BIN)/captionbench report

quick-report: $(VENV)/installed
	$(BIN)/captionbench report --quick

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy reference torch_impl benchmarks

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt 'torch==2.13.0'
	$(BIN)/pip install --quiet -c constraints.txt -e '.[vision,dev]'
	touch $@

clean:
	rm -rf $(VENV)
