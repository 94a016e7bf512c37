# make run    sets up and shows a swarm answering questions about itself, from knowledge/
# make test   sets up and passes the tests
# make faults what tries to break the promises of docs/promises.md, for a quarter of an hour; LONG=1: for hours
# make check  what CI runs beside the tests: format, lint, types, layers
# make bench  the measurements: a table and a plot in benchmarks/results/; QUICK=1: a minute, to see that they run
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable
# Tests write their files into memory where there are 2 GB of it for files: they kill processes, not the power, so what they
# show is the same, and nobody waits for a disk.
IN_MEMORY := $(shell test -w /dev/shm && test "$$(df -k /dev/shm | awk 'END {print $$4}')" -gt 2000000 && echo TMPDIR=/dev/shm)

# Every process of a swarm would compile the package anew where this is set (as in many containers): half a second each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test faults check format bench clean
.DEFAULT_GOAL := run

# A stamp file for each set of packages: made anew when pyproject.toml changes.
$(VENV)/.base: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "python3 has no venv module: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing hivemind and its packages into $(VENV)/ ..."
	@$(INSTALL) '.[terminal]'
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@echo "Installing what the tests need into $(VENV)/ (every extra: some minutes) ..."
	@$(INSTALL) '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@echo "Installing the linters into $(VENV)/ ..."
	@$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.base
	@echo "Installing what the measurements need into $(VENV)/ ..."
	@$(INSTALL) '.[bench]'
	@touch $@

run: $(VENV)/.base
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/ask.sh

test: $(VENV)/.test
	@$(BIN)/python tests/longterm/langgraph_tests.py $(VENV)/langgraph-tests
	@$(IN_MEMORY) $(BIN)/python -m pytest -n 4 --dist worksteal

# Kills, full and failing disks, pauses, wrong clocks, late folders: each needs a program or root; what can't be tried is said.
# Then power losses, hostile input, and mutants of the program, each of which has to be found. LONG=1 has atheris, too.
# At last the tests that `make test` has a sample of, whole.
faults: $(VENV)/.test
	@cd tests/faults/report && rm -f scenarios.json linked.json power.json fuzz.json mutants.json
	@$(if $(LONG),$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris,true)
	@status=0; \
	$(IN_MEMORY) $(BIN)/python -m tests.faults --report --strict $(if $(LONG),--long) || status=1; \
	$(IN_MEMORY) $(BIN)/python -m tests.faults.linked --report $(if $(LONG),--long) || status=1; \
	$(IN_MEMORY) $(BIN)/python -m tests.faults.powerloss --report $(if $(LONG),--long) || status=1; \
	$(IN_MEMORY) $(BIN)/python -m tests.faults.fuzz.run --report --inputs $(if $(LONG),5000,50) || status=1; \
	$(if $(LONG),$(IN_MEMORY) $(BIN)/python -m tests.faults.fuzz.guided --report --inputs 20000 --seconds 1800 || status=1;) \
	$(IN_MEMORY) $(BIN)/python -m tests.faults.mutants.run --report $(if $(LONG),,--short) || status=1; \
	$(IN_MEMORY) HIVEMIND_SAMPLE=all $(BIN)/python -m pytest -n 4 --dist worksteal -m sampled || status=1; \
	exit $$status

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/$(if $(QUICK),.test,.bench)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV)
