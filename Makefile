# make demo   see it work, on real input            make test      prove it
# make torture  fault runs (make soak: half an hour)    make bench  figures of this machine    make lint    make clean
# All of them make their virtualenv first (.ci/setup); a second run starts at once.
SHELL := /bin/bash
VENV := $(shell .ci/setup --where)
RUN := PATH="$(VENV)/bin:$$PATH"

.PHONY: help setup demo test torture soak bench lint format docs clean
help:
	@sed -n '1,3s/^# //p' Makefile

setup:
	@.ci/setup

demo: setup
	@$(RUN) jeet demo

test: setup
	@$(RUN) pytest $(ARGS)

torture: setup
	@$(RUN) JEET_ROUNDS=$${JEET_ROUNDS:-3} pytest -m "torture or drill" tests $(ARGS)

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

docs: setup
	@$(RUN) python docs/generate.py

clean:
	rm -rf "$(VENV)" build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
