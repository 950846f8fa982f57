# Each target is one to three commands, run in an environment of its own. `make help` lists the most used.
#
#   make fig2                                            SmolLM2-135M after make smollm, else the reference model
#   make fig2 MODEL=meta-llama/Llama-2-7b-hf N=300 DEVICE=cuda
#   make fig2 OPERATIONS="addition division" N=9
#   make fig2 PAIRS=mine.jsonl                           prompts of your own
#   make fig2 MODEL=gemma-3-270m SHOTS=4 TEMPLATES=symbols   a pretrained model, after make gemma
#
# What a target computes and draws, and what the variables mean, is in experiments/questions.toml.

# The Python to set up from: the first of these that is new enough, or your own: make PYTHON=...
PYTHON ?= $(or $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
	done),python3)
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Idle OpenMP threads sleep: spinning, they take the processor from other work. Yours wins.
OMP_WAIT_POLICY ?= PASSIVE
export OMP_WAIT_POLICY

# pip says what it downloads; where nobody watches, in lines, and in one every ten seconds while it unpacks.
PIP ?=
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --constraint $(VENV)/constraints.txt $(PIP)
define install
	@echo "installing $(1) into $(VENV), once: $(SIZE_$(1)), and the download"
	@if test -t 2; then $(INSTALL) --editable '.[$(1)]'; else \
		while sleep 10 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
			echo "  still installing: $$(du -sm $(VENV) | cut -f1) MB are in $(VENV)"; done & \
		$(INSTALL) --progress-bar off --editable '.[$(1)]'; code=$$?; kill $$!; exit $$code; fi
endef
# Measured on Linux, two cores, Python 3.11, with torch for the CPU; of all but the first, what is added.
SIZE_commands := 1.8 GB, two to three minutes
SIZE_dev := 0.7 GB, one to two minutes
SIZE_evaluation := 0.2 GB
SIZE_tuning := 6 MB
SIZE_site := 0.1 GB, one to three minutes
SIZE_notebook := JupyterLab, 0.1 GB and more
SIZE_bench := nnsight, a rival

# One word of the shell, whatever spaces and quotes are in it.
quoted = '$(subst ','\'',$(1))'

# The variables of the command line, as words; Python refuses those that a target does not use, and
# targets that it does not know.
SET := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
VALUES := $(foreach name,$(filter-out MAKE% -%,$(SET)),$(call quoted,$(name)=$(value $(name))))
GOALS := $(foreach goal,$(MAKECMDGOALS),$(call quoted,$(goal)))
TARGETS = $(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m experiments.make
REFUSAL := $(if $(GOALS)$(VALUES),$(shell $(TARGETS) check $(GOALS) $(VALUES) 2>/dev/null))
$(if $(REFUSAL),$(error $(REFUSAL)))

.DEFAULT_GOAL := help
OWN := help help-all setup audit smollm gemma notebook notebooks test check bench bench-finetune bench-scale reference \
	docs fig11
ASKED := $(filter-out $(OWN) $(STAMP),$(MAKECMDGOALS))
.PHONY: $(OWN) $(ASKED)

BENCHMARKS := benchmarks evaluate
TUNING := tuning table1 table2 table5 frontier
$(BENCHMARKS) $(TUNING): $(VENV)/.evaluation
$(TUNING) bench-finetune: $(VENV)/.tuning

# Every other target computes and draws in one process. `make -n` prints the commands that would do the same.
$(ASKED): $(STAMP)
	$(if $(findstring n,$(firstword -$(MAKEFLAGS))),+@$(TARGETS) show,@$(BIN)/python -m experiments.make run) \
		$(call quoted,$@) $(VALUES)

help help-all:
	@$(TARGETS) $@

setup: $(STAMP)

option = $(if $($(1)),--$(2) $(call quoted,$($(1))))
audit: $(STAMP)
	@$(BIN)/arith-lens audit $(call quoted,$(or $(MODEL),reference)) --out $(call quoted,$(or $(OUT),results/audits)) \
		$(call option,OPERATION,operation) $(call option,PAIRS,pairs) $(call option,SHOTS,shots)

GET = $(BIN)/arith-lens models get
smollm: $(STAMP)
	@$(GET) smollm2-135m

gemma: $(STAMP)
	@$(GET) gemma-3-270m

notebook: $(VENV)/.notebook
	$(BIN)/python -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/tutorial.ipynb

notebooks: $(VENV)/.notebook
	$(BIN)/python notebooks/generate.py

test: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX="$(if $(filter /%,$(VENV)),,$$PWD/)$(VENV)/bytecode" OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

check: $(VENV)/.dev
	@test -x $(BIN)/ruff -a -x $(BIN)/pyright || $(INSTALL) --no-deps --ignore-installed ruff pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	rm -rf $(VENV)/dist && $(BIN)/python -m hatchling build -d $(VENV)/dist
	$(BIN)/python -m twine check --strict $(VENV)/dist/*

ON = $(if $(SIZE),--size $(SIZE)) $(if $(DTYPE),--dtype $(DTYPE)) $(if $(DEVICE),--device $(DEVICE))
bench: $(STAMP)
	@$(MAKE) --no-print-directory $(VENV)/.bench || echo "nnsight, a rival, cannot be installed: its row will say so"
	$(BIN)/python -m laboratory speed $(ON)

bench-finetune: $(STAMP)
	$(BIN)/python -m laboratory speed_fine_tuning $(ON)

bench-scale: $(STAMP)
	MALLOC_MMAP_THRESHOLD_=65536 $(BIN)/python -m laboratory speed_scale $(if $(N),--n $(N)) $(ON)

reference: $(STAMP)
	$(BIN)/python -m laboratory train_reference

docs: $(VENV)/.site
	$(BIN)/arith-lens explore reference --out results/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

fig11:
	@mkdir -p figures/drawings && cp figures/gallery/$@.svg figures/drawings/ && echo figures/drawings/$@.svg

# A torch that $(PYTHON) has is seen from the new environment (by the .pth file) and kept: its pin
# is left out, and pip touches nothing outside the environment.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "arith_lens needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)."; \
		echo "Cure: install a newer one, or name it: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "'$(PYTHON)' has no venv module, so no environment can be made."; \
		echo "Cure: apt-get install python3-venv (Debian, Ubuntu), or make PYTHON=/path/to/another/python"; exit 1; }
	@echo "On Linux pip takes torch for CUDA, 4 GB more; for the CPU build see docs/setup.md"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(PYTHON) -c 'import torch, site; print(*site.getsitepackages(), site.getusersitepackages(), sep="\n")' \
		2>/dev/null > $(VENV)/base.pth && \
		cp $(VENV)/base.pth "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/base.pth" || true
	@cp constraints.txt $(VENV)/constraints.txt
	@! $(BIN)/python -c 'import torch; print("keeping torch", torch.__version__)' 2>/dev/null || \
		sed '/^torch==/d' constraints.txt > $(VENV)/constraints.txt
	$(call install,commands)
	@touch $@

# What targets need beside that; dev has what most of them do.
$(VENV)/.%: $(STAMP)
	$(call install,$*)
	@touch $@ $(if $(filter dev,$*),$(VENV)/.evaluation $(VENV)/.tuning $(VENV)/.site)
