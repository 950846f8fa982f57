"""What a sum's answer becomes when heads are exchanged with those of another sum."""

from collections.abc import Iterator
from pathlib import Path

import torch

import arith_lens as al
from arith_lens.auditing import measures, operation_pairs
from laboratory.rows import Row, of_measure, write_rows


def exchanges(
    model: str = "smollm2-135m",
    heads: tuple[str, ...] = ("20.8", "21.2", "23.3", "23.0"),
    draws: int = 20,
    csv: Path | None = None,
) -> None:
    """Exchange heads with those of another sum, and print how often the answer becomes its.

    Args:
        model: a name, a folder or a GGUF file.
        heads: exchanged one by one, and all together.
        draws: the number of sets of other heads of the same layers.
        csv: the file to write.
    """
    write_rows(_rows(al.load_model(model), heads, draws), csv)


def _rows(model: al.HookedModel, heads: tuple[str, ...], draws: int) -> Iterator[Row]:
    chosen = [al.Head.parse(head) for head in heads]
    others = measures.Scale.of(model, 0, draws).controls(chosen, draws)
    sets = {head: [one] for head, one in zip(heads, chosen, strict=True)} | {"all": chosen}
    sets |= {name: one for name, one in others.items() if name.startswith(measures.LAYERS)}
    right = al.keep_correct(model, operation_pairs(model, "addition")["operands"])
    for changed in ("A", "B", "A and B"):
        pairs = _other_sums(model, right, changed)
        for name, one in sets.items():
            if name not in heads and changed != "A and B":
                continue
            outcome = al.knock_out(model, pairs, one, ablation="counterfactual", positions="end")
            own = measures.share(outcome.answers_other, pairs, torch.empty(0, len(pairs)))
            yield {"model": model.name, "changed": changed, "heads": name, **of_measure(own)}


def _other_sums(model: al.HookedModel, pairs: al.PromptPairs, changed: str) -> al.PromptPairs:
    """The sums of some pairs, each with another one in which some operands differ."""
    rows = []
    generator = torch.Generator().manual_seed(0)
    assert pairs.operands is not None
    texts = [
        model.tokenizer.decode(own[own_mask], skip_special_tokens=True)
        for own, own_mask in zip(pairs.reference, pairs.attention_mask.bool(), strict=True)
    ]
    for text, problem, (a, b) in zip(texts, pairs.problem, pairs.operands.tolist(), strict=True):
        others = [
            (x, y)
            for x in range(1, 10)
            for y in range(1, 10)
            if x + y < 10
            and x + y != a + b
            and (x != a) == ("A" in changed)
            and (y != b) == ("B" in changed)
        ]
        if not others:
            continue
        x, y = others[int(torch.randint(len(others), (), generator=generator))]
        before, _, _ = text.rpartition(f"{a} + {b} = ")
        rows.append(
            {
                "reference": text,
                "counterfactual": f"{before}{x} + {y} = ",
                "answer": str(a + b),
                "counterfactual_answer": str(x + y),
                "problem": problem,
            }
        )
    return al.PromptPairs.from_rows(rows, model)
