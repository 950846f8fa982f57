"""`fine_tune`: check the settings, train, prove what did not change, write what changed."""

import json
import math
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

from arith_lens.components import Head, Heads, Mlp, Mlps, as_heads, as_mlps
from arith_lens.fine_tuning.methods import (
    Placement,
    Prepared,
    TuningOptions,
    TuningSettings,
    check_method,
    prepare,
    random_components,
)
from arith_lens.fine_tuning.pieces import read_pieces, write_pieces
from arith_lens.fine_tuning.results import (
    CHECKPOINT_FOLDER,
    DELTA_FILE,
    RESULT_FILE,
    Delta,
    TuningResult,
    Untouched,
    load_base,
)
from arith_lens.fine_tuning.training import (
    dataset_hash,
    is_sharded,
    read_dataset,
    refuse_sharded,
    tokenized_examples,
    train,
    whole_state,
)
from arith_lens.model import default_device, weights_hash
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.untrusted import parse_json

QUESTION_FILE, STEPS_FOLDER = "question.json", "steps"


def fine_tune(
    source: Any,
    dataset: Any,
    *,
    method: str = "precise",
    heads: Heads = (),
    mlps: Mlps = (),
    output: str | Path,
    progress: bool = True,
    **settings: Unpack[TuningOptions],
) -> TuningResult:
    """Tune a whole model or chosen components on answers (paper, section 4.3, Algorithm 2).

    If it is called again with the same arguments and `output`, it continues a stopped tuning, with
    the same weights (bit for bit on one CPU thread), or returns the finished result.

    Args:
        source: a name, directory or hub id, as in `load_model`; or `(hf_model, tokenizer)`, which
            is copied and does not change.
        dataset: rows with `prompt` and `answer`: mappings, a `datasets.Dataset`, or the path of a
            JSONL file. The answer follows the prompt directly. The loss is on the tokens of the
            answer and EOS alone.
        method: `"precise"`: the heads' slices of W_Q, W_K, W_V, W_O, and whole MLPs. `"random"`:
            the same number of components, drawn from all others. `"lora"`: adapters with as many
            parameters, in every layer's attention (and MLPs if `mlps` are given). `"full"`:
            everything.
        heads, mlps: the components to tune (or, for `"random"` and `"lora"`, to compare with). None
            for `"full"`.
        output: the folder for the delta (precise, random) or checkpoint, and `tuning.json`.
        checkpoint: whether to also write a plain Hugging Face checkpoint beside the delta.
        device: the device; None: the GPU if there is one.
        progress: whether to show a progress bar.
        **settings: the defaults are the paper's. Of the training: `learning_rate`, `batch_size`,
            `micro_batch`, `epochs`, `max_steps`, `warmup`, `weight_decay`, `max_grad_norm`,
            `schedule`, `seed`, `save_every`, `log_every`. Of the data: `max_length`,
            `end_with_eos`. Of the model: `bf16`, `gradient_checkpointing`, `attention`. Of the
            method: `rescale`, `kv`, `lora_rank`. The docstring of
            `arith_lens.fine_tuning.TuningSettings` explains each.

    Raises:
        TypeError: a setting does not exist, the dataset has no rows, or the model is a loaded
            bridge.
        ValueError: rows are missing or not valid, a method lacks its components or "full" has some,
            the model is quantised, its heads cannot be cut, or the folder has another tuning.
        IndexError: the model does not have a component.
        FloatingPointError: the loss became NaN or infinite.

    Example:
        >>> import arith_lens as al
        >>> examples = [{"prompt": f"{a} + 2 = ", "answer": str(a + 2)} for a in (1, 3)]
        >>> result = al.fine_tune("reference", examples, heads=["5.5"], output="tuned", max_steps=1)
        {...
        2,567,296 untouched weights bit-identical to the base...
        >>> result.n_tuned                         # four slices of one head
        8192
    """
    chosen, blocks = sorted(set(as_heads(heads))), sorted(set(as_mlps(mlps)))
    refuse_unknown_options(fine_tune, settings, TuningSettings, Placement)
    options, placement = value_object(TuningSettings, settings), value_object(Placement, settings)
    check_method(method, chosen, blocks)
    rows = read_dataset(dataset)
    device = placement.device or default_device()
    refuse_sharded(method, device)
    hf_model, tokenizer, base = load_base(
        source,
        dtype=_dtype(source, method, options),
        device=None if is_sharded() else device,  # else each process would hold the whole model
        attention=options.attention,
    )
    length = options.max_length or getattr(hf_model.config, "max_position_embeddings", None)
    examples = tokenized_examples(
        tokenizer, rows, max_length=length, end_with_eos=options.end_with_eos
    )
    if method == "random":
        chosen, blocks = random_components(hf_model, chosen, blocks, options.seed)
    facts = {
        "method": method,
        "base": base,
        "base_hash": weights_hash(hf_model),
        "dataset_hash": dataset_hash(rows),
        "n_examples": len(rows),
        "heads": [str(head) for head in chosen],
        "mlps": [str(mlp) for mlp in blocks],
        "settings": asdict(options),
    }
    folder = Path(output)
    if _finished(folder, facts):
        return TuningResult.load(folder)
    n_parameters = sum(weight.numel() for weight in hf_model.parameters())
    prepared = prepare(hf_model, method, chosen, blocks, options)
    n_tuned = sum(w.numel() for w in prepared.model.parameters() if w.requires_grad)
    counts = {"n_parameters": n_parameters, "n_tuned": n_tuned}  # while no parameter is sharded
    trainer = train(
        prepared, examples, options, folder / STEPS_FOLDER, device=device, progress=progress
    )
    result, tuned = _outcome(facts | counts, prepared, trainer, folder)
    if result.untouched and progress:
        print(result.untouched)
    weights = whole_state(trainer)
    if trainer.is_world_process_zero():
        _write(result, tuned, tokenizer, prepared, checkpoint=placement.checkpoint, weights=weights)
    trainer.accelerator.wait_for_everyone()  # until all files of the result exist
    return result


def _outcome(
    facts: dict[str, Any], prepared: Prepared, trainer: Any, folder: Path
) -> tuple[TuningResult, Any]:
    """The result of a training, and the tuned model as a plain one."""
    losses = _losses(trainer)
    tuned = prepared.finish()
    result = TuningResult(
        **{**facts, "heads": tuple(facts["heads"]), "mlps": tuple(facts["mlps"])},
        lora_rank=prepared.lora_rank,
        losses=losses,
        seconds=trainer.outcome.metrics["train_runtime"],
        samples_per_second=trainer.outcome.metrics["train_samples_per_second"],
        untouched=_prove(tuned, prepared, facts["base_hash"], facts["n_parameters"]),
        output=str(folder),
    )
    return result, tuned


def _dtype(source: Any, method: str, settings: TuningSettings) -> str | None:
    """The dtype during training. Under bf16, only full fine-tuning keeps float32."""
    if settings.bf16 and method != "full":
        return "bfloat16"
    return None if isinstance(source, tuple) else "float32"


def _finished(folder: Path, facts: dict[str, Any]) -> bool:
    """Whether this tuning is finished. For a new one, its settings are written to the folder."""
    path = folder / QUESTION_FILE
    if path.is_file():
        previous = parse_json(path.read_text(encoding="utf-8"))
        ours, theirs = (d | d["settings"] for d in (facts, previous))
        different = sorted(k for k in ours if k != "settings" and ours[k] != theirs.get(k))
        if different:
            raise ValueError(
                f"expected a new folder or one of this tuning, found another in {folder}: its "
                f"{', '.join(different)} differ; give another output, or remove it"
            )
        return (folder / RESULT_FILE).is_file()
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f"{QUESTION_FILE}.{os.getpid()}"  # several processes begin at once
    half.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    half.replace(path)
    return False


def _losses(trainer: Any) -> tuple[tuple[int, float], ...]:
    """The logged losses. Raises FloatingPointError if one is not finite."""
    losses = tuple(
        (int(entry["step"]), float(entry["loss"]))
        for entry in trainer.state.log_history
        if "loss" in entry
    )
    for step, loss in losses:
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"expected a finite loss, found {loss} at step {step}; lower learning_rate, or use "
                "bf16=True or float32 weights"
            )
    return losses


def _prove(tuned: Any, prepared: Prepared, base_hash: str, n_parameters: int) -> Untouched | None:
    """Write the first values back, hash the model, and write the tuned values again."""
    if not prepared.first:
        return None
    first = dict(prepared.first)
    last = read_pieces(tuned, first)
    write_pieces(tuned, first)
    identical = weights_hash(tuned) == base_hash
    write_pieces(tuned, last)
    n_tuned = sum(value.numel() for value in last.values())
    return Untouched(
        n_untouched=n_parameters - n_tuned,
        n_tuned=n_tuned,
        n_changed=sum(int((last[piece] != first[piece]).sum()) for piece in last),
        identical=identical,
    )


def _write(
    result: TuningResult,
    tuned: Any,
    tokenizer: Any,
    prepared: Prepared,
    *,
    checkpoint: bool,
    weights: dict[str, Any] | None,
) -> None:
    """Write the delta, the checkpoint and the result; the steps are no longer needed."""
    folder = Path(result.output)
    if prepared.first:
        heads, mlps = map(Head.parse, result.heads), map(Mlp.parse, result.mlps)
        dtype = str(tuned.dtype).removeprefix("torch.")
        values = read_pieces(tuned, prepared.first)
        delta = Delta(result.base, result.base_hash, dtype, tuple(heads), tuple(mlps), values)
        delta.save(folder / DELTA_FILE)
    if checkpoint or not prepared.first:
        tuned.save_pretrained(folder / CHECKPOINT_FOLDER, state_dict=weights)
        tokenizer.save_pretrained(folder / CHECKPOINT_FOLDER)
    result.save()
    shutil.rmtree(folder / STEPS_FOLDER, ignore_errors=True)
