"""The logit lens of one prompt as a table."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from arith_lens.probes import lens_table


@torch.no_grad()
def test_the_table_is_the_plain_models_lens(llama: Any) -> None:
    prompt = "3 plus 5 = "
    table: Any = lens_table(llama, prompt, k=2)
    hf, tokens = llama.bridge.original_model, llama.to_tokens(prompt)
    states = hf(tokens, output_hidden_states=True)
    n = tokens.shape[1]
    assert len(table) == 3 * n * 2
    for layer in (0, 2):
        stream = states.hidden_states[layer + 1]
        stream = stream if layer == 2 else hf.model.norm(stream)  # the last one is normed already
        expected = hf.lm_head(stream)[0].softmax(-1).topk(2)
        rows = table[table.layer == layer]
        values = torch.tensor(rows.probability.to_numpy()).view(n, 2).float()
        assert_close(values, expected.values, atol=1e-5, rtol=1e-4)
        texts = [llama.to_string([token]) for token in expected.indices.flatten().tolist()]
        assert rows.token.tolist() == texts
    assert table.read[table.layer == 0].tolist()[::2] == llama.to_str_tokens(prompt)
    first = table[(table.layer == 0) & (table["rank"] == 1)].probability.to_numpy()
    last = table[(table.layer == 2) & (table["rank"] == 1)].probability.to_numpy()
    assert abs(first - last).max() > 1e-3, "another layer would be seen"


def test_a_number_of_tokens_that_there_is_not_is_refused(llama: Any) -> None:
    with pytest.raises(ValueError, match="expected k from 1"):
        lens_table(llama, "3", k=0)
