# make demo   see it work, on real input            make test      prove it
# make torture  fault runs (make soak: half an hour)    make bench  figures of this machine    make lint    make clean
# make lock   pin what is installed                   make audit     look the pinned versions up in lists of known faults
# All of them make their virtualenv first (.ci/setup); a second run starts at once.
SHELL := /bin/bash
VENV := $(shell .ci/setup --where)
RUN := PATH="$(VENV)/bin:$$PATH"

.PHONY: help setup demo test torture soak bench lint format docs capture clean
help:
	@sed -n '1,4s/^# //p' Makefile

setup:
	@.ci/setup

demo: setup
	@$(RUN) jeet demo

test: setup
	@$(RUN) pytest $(ARGS)

torture: setup
	@$(RUN) JEET_ROUNDS=$${JEET_ROUNDS:-3} pytest -m "torture or drill" $(ARGS)

soak: setup
	@$(RUN) pytest -m soak -s $(ARGS)

bench: setup
	@$(RUN) jeet bench $(ARGS)

lint: setup
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy --strict platform/jeet

format: setup
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

lock: setup
	@$(VENV)/bin/python -m venv build/tools && build/tools/bin/pip install --quiet uv
	@{ sed -n '/^#/p' requirements.lock; build/tools/bin/uv pip compile pyproject.toml --quiet --universal \
	    --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url $(ARGS); } >build/lock
	@mv build/lock requirements.lock

audit: setup
	@$(VENV)/bin/python -m venv build/tools && build/tools/bin/pip install --quiet pip-audit
	@build/tools/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.lock

docs: setup
	@$(RUN) python docs/generate.py

capture: setup
	@$(RUN) python docs/capture.py

clean:
	rm -rf "$(VENV)" build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
