# Thin: each target is one to three commands, run in an environment of its own. `make help` lists them.
#
#   make fig2                                            the reference model, in about a minute
#   make fig2 MODEL=meta-llama/Llama-2-7b-hf N=300 DEVICE=cuda
#   make fig2 OPERATIONS="addition division" N=9
#   make fig2 PAIRS=mine.jsonl                           prompts of your own
#   make fig2 MODEL=gemma-3-270m SHOTS=4 TEMPLATES=symbols   a pretrained model, after make gemma

MODEL ?= reference
MODELS ?= reference reference-mistral
N ?=
OPERATIONS ?=
PAIRS ?=
KEEP ?=
DTYPE ?=
DEVICE ?=
TOKENIZER ?= $(MODEL)
DATA ?=
WORKERS ?= 2
SIZE ?=
TASKS ?=
LIMIT ?=
TUNED ?=
PROCESSES ?=
SHOTS ?=
SETS ?=
TEMPLATES ?=
WIDTH ?=

# What each variable means, for `make help`; an unknown one is refused.
ABOUT_MODEL = a shipped model (reference, reference-mistral), a folder, a GGUF file or a hub id; now $(MODEL)
ABOUT_MODELS = several models, for fig12, fig13 and fig14; now $(MODELS)
ABOUT_COMPARE = other models beside MODEL, for explore, such as a folder with the tuned model
ABOUT_N = distinct reference prompts per operation; all if empty
ABOUT_OPERATIONS = "addition division"; the paper's four if empty
ABOUT_PAIRS = a file of your own prompts (JSONL or CSV), for $(TAKE_PAIRS)
ABOUT_KEEP = all: also the prompts that the model answers wrongly
ABOUT_SHOTS = solved examples before each prompt
ABOUT_SETS = how many sets of these examples
ABOUT_TEMPLATES = symbols (3 + 5 = ), all, or names; the operation's nine if empty
ABOUT_WIDTH = column (3.3 in), page (6.9 in) or screen: what a figure is drawn for
ABOUT_DTYPE = float32, bfloat16 or float16
ABOUT_DEVICE = cuda, cuda:1 or cpu; the GPU if there is one
ABOUT_PROCESSES = processes that share the work of fig3
ABOUT_DATA = the folder that holds gsm8k/, svamp/, mmlu/ and other benchmarks
ABOUT_TASKS = benchmarks, for evaluate and the tables of tuning
ABOUT_LIMIT = questions of each benchmark
ABOUT_TUNED = tuned models (deltas or folders), for before-after
ABOUT_TOKENIZER = a model whose tokenizer is shown, for fig8 and fig10; now $(TOKENIZER)
ABOUT_SIZE = the shape of random weights, for bench-finetune and bench-scale
ABOUT_WORKERS = processes of the tests; now $(WORKERS)
ABOUT_PYTHON = the Python to set up from; now $(PYTHON)
ABOUT_VENV = the environment; now $(VENV)
ABOUT_PIP = options of pip install, such as an index with another build of torch
KNOWN := MODEL MODELS COMPARE N OPERATIONS PAIRS KEEP SHOTS SETS TEMPLATES WIDTH DTYPE DEVICE PROCESSES DATA TASKS LIMIT \
	TUNED TOKENIZER SIZE WORKERS PYTHON VENV PIP
COMMAND_LINE := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(firstword $(filter-out $(KNOWN) OMP_WAIT_POLICY MAKE% -%,$(COMMAND_LINE)))
# The nearest of some words: $(call nearest,word,words)
nearest = $(shell $(PYTHON) -c 'import difflib, sys; word, *words = sys.argv[1:]; \
	near = [one for one in words if one == word.upper()] or difflib.get_close_matches(word, words, 3); \
	print("; did you mean " + " or ".join(near) + "?" if near else ";")' $(call quoted,$(1)) $(2))

# Idle OpenMP threads sleep: spinning, they take the processor from other work. Yours wins.
OMP_WAIT_POLICY ?= PASSIVE
export OMP_WAIT_POLICY

# The Python to set up from: the first of these that is new enough, or your own: make PYTHON=...
PYTHON ?= $(or $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
	done),python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# pip says what it downloads; where nobody watches, in lines.
PIP ?=
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --constraint $(VENV)/constraints.txt \
	$(shell test -t 2 || echo --progress-bar off) $(PIP)

# A path as one word of the shell, whatever spaces and quotes are in it.
quoted = '$(subst ','\'',$(1))'
quoted_each = $(foreach word,$(1),$(call quoted,$(word)))

PROMPTS = $(if $(SHOTS),--shots $(SHOTS)) $(if $(SETS),--exemplar-sets $(SETS)) \
	$(if $(TEMPLATES),--templates $(TEMPLATES))
COUNT = $(if $(N),--n $(N))
NAMED = $(if $(OPERATIONS),--operations $(OPERATIONS))
HARDWARE = $(if $(DTYPE),--dtype $(DTYPE)) $(if $(DEVICE),--device $(DEVICE))
DATA_DIR = $(if $(DATA),--data-dir $(call quoted,$(DATA)))
OF_MODEL = --model $(call quoted,$(MODEL))
OWN = $(if $(PAIRS),--pairs $(call quoted,$(PAIRS)) $(if $(KEEP),--keep $(KEEP)))
SAMPLE = $(COUNT) $(NAMED) $(if $(PAIRS),--pairs $(call quoted,$(PAIRS))) $(if $(KEEP),--keep $(KEEP))
WITH = $(SAMPLE) $(HARDWARE)
ASK = $(OF_MODEL) $(WITH) $(PROMPTS)
SHOW_N = $(COUNT) $(OF_MODEL)
ALONE = $(OF_MODEL) $(HARDWARE)
KNOCK = $(ALONE) $(COUNT) $(PROMPTS)
KNOCK_EACH = $(KNOCK) $(NAMED)
KNOCK_DATA = $(KNOCK) $(DATA_DIR)
EVALUATE = $(KNOCK_DATA) $(if $(TASKS),--tasks $(TASKS)) $(if $(LIMIT),--limit $(LIMIT))
PLAIN = $(ALONE) $(COUNT)
KNOCK_TUNED = $(KNOCK) $(if $(TUNED),--tuned $(call quoted_each,$(TUNED)))
TUNE = $(ALONE) $(COUNT) $(DATA_DIR) $(if $(LIMIT),--questions $(LIMIT)) $(if $(TASKS),--tasks $(TASKS))

DRAW = $(if $(WIDTH),--width $(WIDTH))
PROBE = $(COUNT) $(NAMED) $(HARDWARE) $(PROMPTS)
PROBE_MODELS = for model in $(MODELS); do $(BIN)/python -m experiments what_do_mlps_add \
	--model "$$model" $(PROBE) || exit 1; done

# Prompts of one's own work with these alone; the other targets would answer another question.
TAKE_PAIRS := $(shell awk -F '"' '/^key = / { key = $$2; first = 1 } \
	/^name = / { name = $$2; leads = first; first = 0 } \
	/^own_prompts = true/ { print name; if (leads && key != name) print key }' experiments/questions.toml) fig12 explore report
ifeq ($(origin PAIRS),command line)
ifneq ($(filter-out $(TAKE_PAIRS),$(MAKECMDGOALS)),)
$(error make $(firstword $(filter-out $(TAKE_PAIRS),$(MAKECMDGOALS))) takes no PAIRS=; leave it out, or take one of: $(TAKE_PAIRS))
endif
endif

ifneq ($(UNKNOWN),)
$(error make knows no variable $(UNKNOWN)$(call nearest,$(UNKNOWN),$(KNOWN)) make help explains all)
endif

.DEFAULT_GOAL := help

# Targets that compute with an experiment and draw with a figure are listed in one file:
# target:experiment:variable with the options:figure:more arguments of the experiment
QUESTIONS := experiments/questions.toml
LISTED := $(shell awk ' \
	/^\[\[/ { put() } /^\[\[section.question\]\]/ { experiment = ""; first = 1 } \
	/^key = / { key = value($$0) } /^experiment = / { experiment = value($$0) } \
	/^name = / { name = value($$0) } /^arguments = / { more = value($$0) } \
	/^options = / { listed = 1; options = value($$0) } \
	function value(line) { sub(/^[a-z]+ = "/, "", line); sub(/"$$/, "", line); gsub(" ", "~", line); return line } \
	function put() { if (listed) { target(name); if (first && key != name) target(key); first = 0 } listed = 0; more = "" } \
	function target(of) { gsub("_", "-", of); print of ":" experiment ":" (options ? options : "NO_OPTIONS") ":" name ":" more } \
	END { put() }' $(QUESTIONS))
KEYS = $(foreach listed,$(LISTED),$(if $(filter $(subst _,-,$(word 4,$(subst :, ,$(listed)))),$(word 1,$(subst :, ,$(listed)))),,$(word 1,$(subst :, ,$(listed)))))
# A variable that none of the targets uses would be ignored: it is refused. Their options say what they use.
OPTIONS_FROM := PROMPTS COUNT NAMED HARDWARE DATA_DIR OF_MODEL SAMPLE WITH ASK ALONE PLAIN KNOCK KNOCK_EACH KNOCK_DATA \
	KNOCK_TUNED TUNE
OPEN := $$(
CLOSE := )
words_of = $(subst $(COMMA), ,$(subst $(CLOSE), ,$(subst $(OPEN), ,$(value $(1)))))
COMMA := ,
uses = $(sort $(foreach word,$(call words_of,$(1)),$(if $(filter $(word),$(KNOWN)),$(word),$(if \
	$(filter $(word),$(OPTIONS_FROM)),$(call uses,$(word))))))
LISTED_GOALS := $(foreach goal,$(MAKECMDGOALS),$(filter $(goal):%,$(LISTED)))
ifeq ($(words $(LISTED_GOALS)),$(words $(MAKECMDGOALS)))
ifneq ($(LISTED_GOALS),)
USED := $(sort $(foreach listed,$(LISTED_GOALS),$(call uses,$(word 3,$(subst :, ,$(listed)))) \
	$(if $(findstring :are_they_needed:,$(listed)),PROCESSES) $(if $(findstring :what_does_each_part_do:,$(listed)),COMPARE)))
# An empty value, as in SHOTS=, is none.
SET := $(foreach name,$(COMMAND_LINE),$(if $(value $(name)),$(name)))
UNUSED := $(firstword $(filter-out $(USED) WIDTH PYTHON VENV PIP OMP_WAIT_POLICY MAKE% -%,$(SET)))
ifneq ($(UNUSED),)
$(error make $(MAKECMDGOALS) takes no $(UNUSED)=; leave it out, or set one of: $(if $(USED),$(USED),none))
endif
endif
endif
TARGETS := $(shell sed -nE -e 's/^([a-z0-9-]+):.*/\1/p' $(MAKEFILE_LIST)) $(foreach listed,$(LISTED),$(firstword $(subst :, ,$(listed))))
.PHONY: $(TARGETS)

# The targets of `make help`, in groups. Minutes are rough: the model `reference` on two cores.
define HELP_GROUPS
To begin: help setup report smollm gemma notebook explore
Which parts calculate?: fig12
Are they needed, and do they suffice?: evaluate
What do the MLPs read and write?: fig13 fig14
Which method can be trusted?: claims
Drawings, prompts and data: fig1 fig11 fig8 fig10 splits drift
For this project: gallery notebooks reference bench bench-finetune bench-scale test check docs
endef
export HELP_GROUPS
MINUTES = explore:3 report:15 gallery:30 reference:60 setup:5 gemma:4 smollm:1

help: ## list the targets, and explain the variables
	@$(PYTHON) experiments/make_help.py $(firstword $(MAKEFILE_LIST)) "$$HELP_GROUPS" "$(MINUTES)"
	@printf '\nVariables: make fig2 MODEL=reference-mistral N=9\n'
	@printf '  %-12s %s\n' $(foreach name,$(KNOWN),$(name)= $(call quoted,$(ABOUT_$(name))))
	@printf '\nA question has a key, which draws its first figure: make knockout is make fig3. Keys: $(sort $(KEYS))\n'

setup: $(STAMP) ## make .venv and install everything, once

# Most targets compute with one experiment, and draw its run with one figure, which takes the same
# options and finds the run by them: exhibit,<target>,<experiment>,<variable with the options>,<figure>
define exhibit
.PHONY: $(1)
$(1): $(STAMP)
	$$(BEFORE_$(2))
	$$(START_$(2)) experiments $(2) $(subst ~, ,$(5)) $$($(3))
	$$(BIN)/python -m figures $(subst -,_,$(4)) $$($(3)) $$(DRAW) $$(DRAW_$(2))
START_$(2) ?= $$(BIN)/python -m
endef

# On a CPU several processes of one thread share the work of small models better than threads do.
START_are_they_needed = $(if $(PROCESSES),OMP_NUM_THREADS=1 $(BIN)/python -m torch.distributed.run --nproc_per_node $(PROCESSES) -m,$(BIN)/python -m)

# The explorer can show other models beside its own.
BEFORE_what_does_each_part_do = $(if $(COMPARE),for model in $(COMPARE); do $(BIN)/python -m experiments \
	what_does_each_part_do --model "$$model" $(WITH) $(PROMPTS) || exit 1; done)
DRAW_what_does_each_part_do = $(if $(COMPARE),--compare $(COMPARE))

$(foreach listed,$(LISTED),$(eval $(call exhibit,$(word 1,$(subst :, ,$(listed))),$(word 2,$(subst :, ,$(listed))),$(word 3,$(subst :, ,$(listed))),$(word 4,$(subst :, ,$(listed))),$(word 5,$(subst :, ,$(listed))))))

explore: explorer ## the same as make explorer

fig1: ## the three steps of the method: write figures/drawings/fig1.svg, which a browser opens
	@mkdir -p figures/drawings && cp figures/gallery/$@.svg figures/drawings/ && echo figures/drawings/$@.svg

fig11: ## what path patching changes, holds and recomputes: write figures/drawings/fig11.svg
	@mkdir -p figures/drawings && cp figures/gallery/$@.svg figures/drawings/ && echo figures/drawings/$@.svg

drift: ## replaced by generalisation
	@echo "make generalisation replaces make drift: a greedy model keeps nothing between prompts, so it cannot drift."

fig8: $(STAMP) ## print the templates of the operations under a tokenizer; TOKENIZER= or MODEL=
	$(BIN)/python -m experiments template_tables --figure 8 --tokenizers $(call quoted_each,$(TOKENIZER))

fig10: $(STAMP) ## print the stories of addition under a tokenizer; TOKENIZER= or MODEL=
	$(BIN)/python -m experiments template_tables --figure 10 --tokenizers $(call quoted_each,$(TOKENIZER))

fig12: $(STAMP) ## the map of fig2 for several MODELS on one scale: compute, then draw figures/models/fig12.html
	for model in $(MODELS); do $(BIN)/python -m experiments which_heads --model "$$model" $(WITH) $(PROMPTS) || exit 1; done
	$(BIN)/python -m figures $@ --models $(MODELS) $(WITH) $(PROMPTS) $(DRAW)

fig13: $(STAMP) ## what MLPs read and write, in several MODELS
	$(PROBE_MODELS)
	$(BIN)/python -m figures $@ --models $(MODELS) $(PROBE) $(DRAW)

fig14: $(STAMP) ## the same picture as fig13
	$(PROBE_MODELS)
	$(BIN)/python -m figures $@ --models $(MODELS) $(PROBE) $(DRAW)

evaluate: $(STAMP) ## how good is the model at benchmarks, with and without key heads? DATA= TASKS= LIMIT=; default: the closed world's tasks
	$(BIN)/python -m experiments how_good_is_it $(EVALUATE)
	$(BIN)/python -m figures benchmarks $(EVALUATE)

claims: $(STAMP) ## which of the paper's claims hold? reads stored runs; names the command for each missing run
	$(BIN)/python -m figures claims $(SHOW_N)

report: $(STAMP) ## all figures and claims on one page: compute what takes minutes, then write figures/<model>/report.html
	@status=0; \
	$(BIN)/python -m experiments whole_study $(KNOCK_DATA) $(OWN) || status=$$?; \
	test $$status -ne 130 || exit 130; \
	$(BIN)/python -m figures report $(KNOCK_DATA) $(OWN) || exit $$?; \
	test $$status -eq 0 || echo "the report shows the other studies: some failed, see above" >&2; \
	exit $$status

gallery: $(STAMP) ## compute and redraw figures/gallery and docs/gallery.md from the reference models (half an hour)
	for model in reference reference-mistral; do $(BIN)/python -m experiments whole_study --model $$model || exit 1; done
	$(BIN)/python -m figures gallery

GET = $(BIN)/python -c 'import sys, arith_lens; from arith_lens.model import get_pretrained as get; get(sys.argv[1]); print(arith_lens.load_model(sys.argv[1]))'

smollm: $(STAMP) ## download the pretrained model smollm2-135m once (98 MB; 640 MB in the cache), convert and check it; installs nothing
	@$(GET) smollm2-135m

gemma: $(STAMP) ## download the pretrained model gemma-3-270m once (253 MB; 1.3 GB in the cache), convert and check it; installs nothing
	@$(GET) gemma-3-270m

notebook: $(STAMP) ## open the notebooks in JupyterLab, which is installed the first time
	@test -x $(BIN)/jupyter-lab || $(INSTALL) --editable '.[notebook]'
	$(BIN)/jupyter-lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/tutorial.ipynb

notebooks: $(STAMP) ## run the notebooks' sources again and store the output (some minutes)
	@$(BIN)/python -c 'import ipywidgets' 2>/dev/null || $(INSTALL) --editable '.[notebook]'
	$(BIN)/python notebooks/generate.py

test: $(STAMP) ## run the tests, in WORKERS= processes of about 1.5 GB
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX="$(if $(filter /%,$(VENV)),,$$PWD/)$(VENV)/bytecode" OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

check: $(STAMP) ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(STAMP) ## time path patching against other ways; its growth; its memory (some minutes)
	@$(BIN)/python -c 'import nnsight' 2>/dev/null || $(INSTALL) --editable '.[bench]' || \
		echo "nnsight, a rival, cannot be installed: its row will say so"
	$(BIN)/python -m laboratory speed $(HARDWARE)

docs: $(STAMP) ## pages of the library's names, from their docstrings, in site/
	$(BIN)/python -m pdoc --docformat google --no-show-source --output-directory site arith_lens \
		$(subst /,.,$(patsubst %.py,%,$(patsubst %/__init__.py,%,$(sort $(wildcard \
		arith_lens/*/__init__.py arith_lens/[a-z]*.py)))))

splits: $(STAMP) ## write training sets without test questions, and print counts; DATA= holds gsm8k/, svamp/, ...
	$(BIN)/python -m experiments training_splits $(DATA_DIR)

bench-finetune: $(STAMP) ## time training steps: full, LoRA, precise; memory; SIZE=llama-7b DTYPE=bfloat16 DEVICE=cuda
	$(BIN)/python -m laboratory speed_fine_tuning $(if $(SIZE),--size $(SIZE)) $(HARDWARE)

bench-scale: $(STAMP) ## path patching at 7B, random weights; SIZE=llama-13b DEVICE=cuda DTYPE= N=
	MALLOC_MMAP_THRESHOLD_=65536 $(BIN)/python -m laboratory speed_scale \
		$(if $(SIZE),--size $(SIZE)) $(COUNT) $(HARDWARE)

reference: $(STAMP) ## train a reference model anew, in results/ (about an hour on two cores)
	$(BIN)/python -m laboratory train_reference

# A torch that $(PYTHON) has is seen from the new environment (by the .pth file) and kept: its pin
# is left out, and pip touches nothing outside the environment.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "arith_lens needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)."; \
		echo "Cure: install a newer one, or name it: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "'$(PYTHON)' has no venv module, so no environment can be made."; \
		echo "Cure: apt-get install python3-venv (Debian, Ubuntu), or make PYTHON=/path/to/another/python"; exit 1; }
	@echo "setting up $(VENV), once: about five minutes, and 2.3 GB with a CPU build of torch"
	@echo "  (on Linux pip may take the build for CUDA, 6 GB; for the CPU build see docs/setup.md)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(PYTHON) -c 'import torch, site; print(*site.getsitepackages(), site.getusersitepackages(), sep="\n")' \
		2>/dev/null > $(VENV)/base.pth && \
		cp $(VENV)/base.pth "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/base.pth" || true
	@cp constraints.txt $(VENV)/constraints.txt
	@! $(BIN)/python -c 'import torch; print("keeping torch", torch.__version__)' 2>/dev/null || \
		sed '/^torch==/d' constraints.txt > $(VENV)/constraints.txt
	$(INSTALL) --editable '.[commands,views,dev,evaluation,tuning]'
	@test -x $(BIN)/ruff -a -x $(BIN)/pyright || $(INSTALL) --no-deps --ignore-installed ruff pyright
	@touch $@

.DEFAULT:
	@echo "make has no target $@$(call nearest,$@,$(TARGETS)) make help lists all" >&2; exit 2
