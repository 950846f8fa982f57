"""A model with hooks in the harness's class of language models.

Tokens, truncation and stop strings are those of the harness's own class for Transformers. The
hooked model computes the forwards, in batches of similar length, padded on the left. Examples that
prompts begin with are computed once.
"""

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import (
    configure_pad_token,
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
)
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import NamedHook
from arith_lens.memory import fitting_pairs, in_chunks
from arith_lens.model import (
    PrefixCache,
    active_hooks,
    continues_prompts,
    left_pad,
    n_common,
    require_evaluation_mode,
    token_rows,
    without_patterns,
)
from arith_lens.runs import ResultSlot

NO_TOKEN = -1  # after the last token of a row that stopped before the others


@torch.no_grad()
def _written_greedily(
    model: Any,
    tokens: Int[Tensor, "prompt pos"],
    n_new: int,
    stopping: Callable[..., Tensor],
    prefix: PrefixCache,
) -> Int[Tensor, "prompt longer"]:
    """Prompts and new tokens. After its end, a prompt has EOS in place of further tokens."""
    tokens = tokens.to(model.device)
    cache, eos = prefix.copies(len(tokens)), model.tokenizer.eos_token_id
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(n_new):
        likeliest = prefix.following(model, tokens, 1, cache)[:, -1].argmax(-1)
        likeliest = likeliest.to(tokens).masked_fill(ended, eos)
        tokens = torch.cat([tokens, likeliest[:, None]], 1)
        ended = ended | (likeliest == eos) | stopping(tokens, None).to(ended)
        if bool(ended.all()):
            break
    return tokens


def bytes_of_row(model: Any, length: int) -> int:
    """An estimate of the bytes of a row: attention (three copies), logits, and the rest."""
    cfg = model.cfg
    a_token = 2 * cfg.d_vocab + 4 * cfg.d_mlp + 8 * cfg.d_model
    a_token += 2 * cfg.n_layers * model.n_kv_heads * cfg.d_head
    return 4 * length * (3 * cfg.n_heads * length + a_token)


MAX_NEW = 256  # the harness's default
ROWS_PER_FORWARD = 64  # the largest number of rows in a forward
ROWS_PER_PART = 64  # the number of rows that a run stores together
LEAST_SHARED, LEAST_SHARE = 64, 0.5
"""The fewest tokens that are computed once for all prompts of a part, and the smallest share of all
tokens that this saves. Below, prompts of several lengths in one batch cost less."""
Answer = Callable[[Sequence["SharedPrompt"], PrefixCache | None], Tensor]
"""A function that returns one line of numbers per row."""


@dataclass(frozen=True)
class SharedPrompt:
    """A prompt, with the requests that share it."""

    ids: tuple[int, ...]
    requests: tuple[int, ...]
    task: str


class HookedLM(TemplateLM):
    """Answers the harness's requests with a HookedModel.

    Attributes:
        seconds: the time for each task's prompts; a batch's time is divided by tokens.
        truncated: the number of prompts of each task that were cut.
    """

    def __init__(
        self,
        model: Any,
        hooks: Sequence[NamedHook] = (),
        *,
        hook_steps: Literal["all", "prompt"] = "all",
        batch_size: int | None = None,
        too_long: Literal["error", "truncate"] = "error",
        slot: ResultSlot | None = None,
        progress: bool = True,
    ) -> None:
        super().__init__()
        require_evaluation_mode(model)
        self.model = model
        self.hooks = list(hooks)
        self.hook_steps = hook_steps
        self.at_most = batch_size or ROWS_PER_FORWARD
        self.too_long = too_long
        self.slot = slot or ResultSlot(None, "", {}, None)
        self.progress = progress
        self.tokenizer: Any = configure_pad_token(model.tokenizer)
        self.seconds: dict[str, float] = defaultdict(float)
        self.truncated: Counter[str] = Counter()

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    @property
    def max_length(self) -> int:
        return int(self.model.cfg.n_ctx)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """The tokens of a text, as pairs have them; False: of the text alone.

        The harness's own class gives the same, except for tokenizers that add EOS at the end.
        """
        if add_special_tokens is False:
            return self.tokenizer.encode(string, add_special_tokens=False)
        return token_rows(self.tokenizer, [string])[0]

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """(log-probability, whether greedy decoding would write it) of each continuation."""
        self._tasks = [str(request.task_name) for request in requests]
        return super().loglikelihood(requests, disable_tqdm=True)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        shared: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, (_texts, context, continuation) in enumerate(requests):
            full = self._fitting([*context, *continuation], self.max_length + 1, self._tasks[i])
            shared[tuple(full[:-1])].append(i)
        rows = [SharedPrompt(ids, tuple(at), self._tasks[at[0]]) for ids, at in shared.items()]
        scored = [continuation for _, _, continuation in requests]
        longest = max(map(len, scored))
        self._check_positions(longest)
        width = max(len(row.requests) for row in rows)
        score = partial(self._scores, scored=scored, width=width)
        results: dict[int, tuple[float, bool]] = {}
        for row, scores in self._answered("choices", rows, score, longest, scored=scored):
            for i, (logprob, greedy) in zip(row.requests, scores.tolist(), strict=False):
                results[i] = logprob, bool(greedy)
        return [results[i] for i in range(len(requests))]

    @torch.no_grad()
    def _scores(
        self,
        batch: Sequence[SharedPrompt],
        prefix: PrefixCache | None,
        *,
        scored: Sequence[Sequence[int]],
        width: int,
    ) -> Float[Tensor, "prompt continuation what=2"]:
        """Log-probability of each continuation, and 1 where greedy decoding would write it.

        Args:
            batch: prompts, each followed by its continuations' tokens but the last; those of a
                prompt that has several end in the same tokens
            prefix: of all prompts, which then have one length
            scored: the continuation of each request
            width: how many continuations a prompt has at most; NaN where it has fewer
        """
        tokens, mask = left_pad([row.ids for row in batch])
        longest = max(len(scored[i]) for row in batch for i in row.requests)
        with without_patterns(self.model, self.hooks), self.model.hooks(self.hooks):
            if prefix is None:
                logits = self.model(tokens, attention_mask=mask, logits_to_keep=longest)
            else:
                cache = prefix.copies(len(tokens))
                logits = prefix.following(self.model, tokens, longest, cache)
        logprobs = logits.float().log_softmax(-1)
        scores = torch.full((len(batch), width, 2), float("nan"), dtype=torch.float64)
        for row, prompt in enumerate(batch):
            for column, i in enumerate(prompt.requests):
                chosen = torch.tensor(scored[i], device=logprobs.device)
                at = logprobs[row, -len(chosen) :]
                scores[row, column, 0] = at.gather(1, chosen[:, None]).sum()
                scores[row, column, 1] = (at.argmax(-1) == chosen).all()
        return scores

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """The text that the model writes after each prompt, up to a stop string."""
        by_settings: dict[str, list[int]] = defaultdict(list)
        for i, request in enumerate(requests):
            by_settings[repr(request.args[1])].append(i)
        texts: dict[int, str] = {}
        for alike in by_settings.values():
            texts |= self._written({i: requests[i] for i in alike})
        return [texts[i] for i in range(len(requests))]

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Not supported: no task with right and wrong answers needs it."""
        raise ValueError(
            "expected requests for texts or choices, found some for the likelihood of whole "
            "documents; measure perplexity with the harness's own models"
        )

    def _written(self, requests: dict[int, Any]) -> dict[int, str]:
        """The texts of requests with the same settings."""
        settings: dict[str, Any] = {
            **normalize_gen_kwargs(next(iter(requests.values())).args[1], MAX_NEW)
        }
        eos = self.tokenizer.decode(self.eot_token_id)
        stops = handle_stop_sequences(settings.pop("until"), eos=eos)
        n_new = int(settings.pop("max_gen_toks"))
        if not settings["do_sample"]:
            settings.pop("temperature", None)
        rows = []
        for i, request in requests.items():
            task = str(request.task_name)
            ids = self._fitting(self.tok_encode(request.args[0]), self.max_length - n_new, task)
            rows.append(SharedPrompt(tuple(ids), (i,), task))

        write = partial(self._written_on, n_new=n_new, stops=stops, settings=settings)
        own = 1 if settings == {"do_sample": False} else None
        decisive = {"stops": stops, "settings": settings}
        texts = {}
        for row, new in self._answered("texts", rows, write, own, n_new=n_new, **decisive):
            ids = [token for token in new.tolist() if token != NO_TOKEN]
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            texts[row.requests[0]] = postprocess_generated_text(text, stops, None)
        return texts

    def _written_on(
        self,
        batch: Sequence[SharedPrompt],
        prefix: PrefixCache | None,
        *,
        n_new: int,
        stops: list[str],
        settings: Mapping[str, Any],
    ) -> Int[Tensor, "prompt pos"]:
        """The tokens written after each prompt, up to a stop string or `n_new` tokens.

        `prefix` is of all prompts, which then have one length; their text is greedy.
        """
        from lm_eval.models.utils_hf import stop_sequences_criteria

        tokens, mask = left_pad([row.ids for row in batch])
        width = tokens.shape[1]
        stopping = stop_sequences_criteria(self.tokenizer, stops, width, len(batch))
        with without_patterns(self.model, self.hooks):
            if prefix is None:
                written = self.model.generate(
                    tokens,
                    fwd_hooks=self.hooks,
                    hook_steps=self.hook_steps,
                    attention_mask=mask,
                    max_new_tokens=n_new,
                    stopping_criteria=stopping,
                    **settings,
                )
            else:
                with self.model.hooks(self.hooks):
                    written = _written_greedily(self.model, tokens, n_new, stopping, prefix)
        new = written[:, width:]
        return torch.nn.functional.pad(new, (0, n_new - new.shape[1]), value=NO_TOKEN).cpu()

    def _answered(
        self,
        what: str,
        rows: list[SharedPrompt],
        answer: Answer,
        own: int | None,
        *,
        n_new: int = 0,
        **settings: Any,
    ) -> list[tuple[SharedPrompt, Tensor]]:
        """Each row with its answer. Rows that a run has stored are not computed again.

        Args:
            own: the number of tokens at the end of each prompt that are computed for it alone; None
                if all of them are.
            settings: what decides the answers besides the prompts.
        """
        # longest first: if memory is too small, this shows at once
        rows = sorted(rows, key=lambda row: (-len(row.ids), row.ids))
        starts = range(0, len(rows), ROWS_PER_PART)
        parts = [rows[start : start + ROWS_PER_PART] for start in starts]
        prompts = json.dumps([[row.ids, row.requests] for row in rows] + [n_new, settings]).encode()
        shards = self.slot.shards(
            lambda index: self._computed(parts[index], answer, own, n_new),
            len(parts),
            title=what,
            unit="prompt",
            sizes=[len(part) for part in parts],
            progress=self.progress,
            requests={what: hashlib.sha256(prompts).hexdigest(), "part": ROWS_PER_PART},
        )
        for shard in shards:
            for task, seconds in shard.header["seconds"].items():
                self.seconds[task] += seconds
        answers = [line for shard in shards for line in shard.tensors["answers"]]
        return list(zip(rows, answers, strict=True))

    def _computed(
        self, rows: list[SharedPrompt], answer: Answer, own: int | None, n_new: int
    ) -> Arrays:
        """The answers of one part, in batches that fit in memory, and each task's seconds."""
        seconds: dict[str, float] = defaultdict(float)
        prefix = None if own is None else self._shared_prefix(rows, own, n_new)

        def batch(of: slice) -> Tensor:
            started = time.perf_counter()
            if prefix is None:
                answers = answer(rows[of], None)
            else:  # without padding, one length at a time
                by_length = groupby(rows[of], lambda row: len(row.ids))
                answers = torch.cat([answer([*alike], prefix) for _, alike in by_length])
            took = time.perf_counter() - started
            sizes = {row: len(row.ids) + n_new for row in rows[of]}
            for row, size in sizes.items():
                seconds[row.task] += took * size / sum(sizes.values())
            return answers.movedim(0, -1)

        longest = len(rows[0].ids) + n_new
        room = fitting_pairs(bytes_of_row(self.model, longest), len(rows), self.model.device)
        answers, _ = in_chunks(batch, len(rows), min(room, self.at_most))
        return Arrays({"answers": answers.movedim(-1, 0).contiguous()}, {"seconds": dict(seconds)})

    def _shared_prefix(self, rows: list[SharedPrompt], own: int, n_new: int) -> PrefixCache | None:
        """The tokens that all rows begin with, if computing them once saves enough."""
        lengths = [len(row.ids) for row in rows]
        shared = n_common([row.ids for row in rows], own)
        saves_enough = shared * (len(rows) - 1) >= LEAST_SHARE * sum(lengths)
        tokenwise = all(getattr(hook, "is_tokenwise", False) for _, hook in self.hooks)
        if shared < LEAST_SHARED or not saves_enough or not tokenwise or self.hook_steps != "all":
            return None
        if active_hooks(self.model) or not continues_prompts(self.model, max(lengths) + n_new):
            return None
        with without_patterns(self.model, self.hooks), self.model.hooks(self.hooks):
            return PrefixCache.of(self.model, rows[0].ids[:shared])

    def _fitting(self, ids: list[int], most: int, task: str) -> list[int]:
        """The prompt, cut on its left if that is allowed and necessary."""
        if len(ids) <= most:
            return ids
        if self.too_long == "error" or most <= 0:
            raise ValueError(
                f"expected prompts of {task} of at most {most} tokens, found one of {len(ids)} "
                f"(the model's context is {self.max_length}, what is to be written included); give "
                f"fewer shots, such as shots={{{task!r}: 0}}, or too_long='truncate', which cuts "
                "prompts on their left as the harness does"
            )
        self.truncated[task] += 1
        return ids[-most:]

    def _check_positions(self, longest: int) -> None:
        """Raise ValueError for choices of several tokens if hooks have positions."""
        if longest > 1 and any(
            getattr(hook, "positions", None) is not None for _, hook in self.hooks
        ):
            raise ValueError(
                f"expected choices of one token with hooks that have positions, found one of "
                f"{longest}: its first tokens would count as the prompt; give hooks for every "
                "position"
            )
