PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# without its bytecode every process compiles the project anew
unexport PYTHONDONTWRITEBYTECODE

# the tests of the conformance kit, and of our implementations by it
KIT = conformance faults mutants shrinking time_candidate verify*
KIT_FILES = $(KIT:%=tests/test_%.py)

.PHONY: report test kit browser faults mutants campaign short-campaign lint quick-report timings clean

report: $(VENV)/installed
	$(BIN)/captionbench report

# three on two cores: a seventh of the time they wait for processes and files
test: $(VENV)/installed
	$(BIN)/python -m pytest -n 3 --dist worksteal $(KIT_FILES:%='--ignore-glob=%')

kit: $(VENV)/installed
	$(BIN)/python -m pytest -n 3 --dist worksteal $(KIT_FILES)

# the report in a real browser; without one it says that it is not run
browser: $(VENV)/installed
	$(BIN)/python -m tests.browser

# every planted fault must be caught by the test named for it
faults: $(VENV)/installed
	$(BIN)/python -m tests.faults

# every wrong candidate must be caught by the property named for it
mutants: $(VENV)/installed
	$(BIN)/python -m tests.mutants

# kills, doubles, damages, a full disk and bad input at random, for half an hour; then every option
# of every command with values that it was not made for, for another
campaign: $(VENV)/installed
	$(BIN)/python -m tests.campaign --seed $(or $(SEED),0)
	$(BIN)/python -m tests.every_option

short-campaign: $(VENV)/installed
	$(BIN)/python -m tests.campaign --seconds 60
	$(BIN)/python -m tests.every_option --cases 150

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict reference
	$(BIN)/mypy torch_impl benchmarks

quick-report: $(VENV)/installed
	$(BIN)/captionbench report --quick

# recorded, never a gate: what is counted is one, in the tests
timings: $(VENV)/installed
	$(BIN)/python -m pytest benchmarks/perf/pytest_benchmark --benchmark-max-time=0.05 \
		--benchmark-min-rounds=3 --benchmark-autosave

# torch on its own first: an index may hold its wheel where it holds no other pinned one
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[vision,export,dev]'
	touch $@

clean:
	rm -rf $(VENV)
