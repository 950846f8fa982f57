"""What the report says in words: what it is, its terms, and where its numbers come from."""

import html
import json
from collections.abc import Sequence

from pandas import DataFrame

from arith_lens.runs import Run
from figures.common import shipped
from figures.exhibit import html_table

WHAT = """<p>A language model reads “3 plus 5 equals to ” and goes on with “8”. Nobody has
programmed it to add. Which of its parts do, what do they look at, and what do they hand on? This
page collects what was measured of one model, in the order of the questions of <i>Interpreting and
Improving Large Language Models in Arithmetic Calculation</i> (Zhang et al., ICML 2024,
<a href="https://arxiv.org/abs/2409.01659">arXiv 2409.01659</a>), whose findings stand beside each
figure as “in the paper”: they were made on LLaMA-2 and Mistral, and need not hold here.</p>
<p>Everything on it was computed by <code>arith_lens</code> and drawn from the runs that are listed
<a href="#runs">at the end</a>, with their settings. The page is one file and asks nothing of the
network. Charts answer to the pointer: they tell the value and the name of what is below it. The
small print under each says what it was made from.</p>"""

TERMS = {
    "Head, 12.22": "An attention head: a part that looks at earlier tokens and writes what it "
    "finds into the stream from which the answer is read. 12.22 is head 22 of layer 12, both "
    "counted from 0.",
    "MLP": "The other kind of part: one a layer, it works on each token alone.",
    "END": "The last token of a prompt; the model's next token is read there.",
    "A, B, C": "The two operands of a calculation and its right answer.",
    "Reference and counterfactual": "A prompt with a calculation (“3 plus 5 equals to ”), and the "
    "same without it (“3 void 5 equals to ”), token by token of one length.",
    "Logit": "The model's score for a token, before scores become probabilities.",
    "Effect": "What one part does to the logit of C: it is given what it says on the "
    "counterfactual while all else sees the reference, and the logit changes by so many percent.",
    "Key head": "A head with a mean effect below −5%.",
    "Knockout": "A head's output is replaced by its mean over counterfactuals, so that it says "
    "nothing about the prompt at hand.",
    "95% interval": "What the number might be with other prompts; prompts with the same "
    "calculation are drawn together.",
}


def about_model(runs: Sequence[Run]) -> str:
    """The model, in a line or two; a warning where runs are of several checkpoints."""
    models = [run.record["provenance"].get("model") or {} for run in _of_first(runs)]
    known = next((model for model in models if model), {})
    told = []
    if known:
        told.append(
            f"{known.get('n_layers')} layers of {known.get('n_heads')} heads and an MLP each; "
            f"weights {str(known.get('weights_sha256'))[:12]} (SHA-256), {known.get('dtype')} on "
            f"{known.get('device')}."
        )
    dates = sorted(str(run.record.get("ended", ""))[:10] for run in runs)
    told.append(f"From {len(runs)} runs, {dates[0]} to {dates[-1]}.")
    if runs[0].config["model"] in ("reference", "reference-mistral"):
        told.append(
            "It is one of the small models that come with the project, trained on a closed world "
            "to show the method at work; nothing is claimed from it about larger ones."
        )
    weights = {model.get("weights_sha256") for model in models if model}
    if len(weights) > 1:
        told.append(
            f"Careful: the runs are of {len(weights)} different checkpoints under this name."
        )
    return f'<p class="under">{html.escape(" ".join(told))}</p>'


def _of_first(runs: Sequence[Run]) -> list[Run]:
    """The runs of the page's own model."""
    return [run for run in runs if run.config["model"] == runs[0].config["model"]]


def provenance(runs: Sequence[Run]) -> str:
    """A table of the runs, and each one's settings in full."""
    table = DataFrame([_row(run) for run in runs])
    settings = "".join(_settings(run) for run in runs)
    return (
        "<p>A run keeps its results with its settings, the model's weights as a hash, and the "
        "versions of the software; equal settings, weights and versions give the same numbers.</p>"
        f'<div class="box" tabindex="0">{html_table(table)}</div>{settings}'
    )


def _row(run: Run) -> dict[str, str]:
    given = run.record["provenance"]
    model, versions = given.get("model") or {}, given.get("versions") or {}
    return {
        "experiment": run.experiment,
        "model": str(run.config["model"]),
        "weights": str(model.get("weights_sha256") or "")[:12],
        "computed in": " ".join(str(model.get(key, "")) for key in ("dtype", "device")).strip(),
        "seed": str(run.config.get("seed", "")),
        "ended": str(run.record.get("ended", ""))[:16].replace("T", " "),
        "took": _time(run.record["wall_seconds"]),
        "torch": str(versions.get("torch", "")),
        "folder": f"{run.path.parent.name}/{run.path.name}" + (" (shipped)" * shipped(run)),
    }


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _settings(run: Run) -> str:
    shown = {"config": run.config, "provenance": run.record["provenance"]}
    text = json.dumps(shown, indent=1, ensure_ascii=False)
    name = html.escape(f"{run.experiment}, {run.config['model']}")
    return f"<details><summary>Settings: {name}</summary><pre>{html.escape(text)}</pre></details>"
