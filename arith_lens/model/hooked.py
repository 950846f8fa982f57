"""A model with hooks: its tokens, the protocol that the methods need, and the class."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.components import NamedHook, layer_of
from arith_lens.model.state import active_hooks, require_evaluation_mode, require_values
from arith_lens.model.texts import PAD, first_token, left_pad, text_alone, token_rows
from arith_lens.model.weights import ORIGIN

Tokens: TypeAlias = Tensor | Sequence[Any] | str
"""Int[Tensor, "batch pos"], rows of equal length, a text or several."""


def check_tokens(
    tokens: Tokens,
    attention_mask: Tensor | None,
    tokenizer: Any,
    device: torch.device,
    prepend_bos: bool | None = None,
) -> tuple[Any, Tensor | None]:
    """The tokens as Int[Tensor, "batch pos"] on `device`, and their mask.

    Texts of unequal lengths are padded on the left. `prepend_bos` is that of `to_tokens`.

    Raises:
        ValueError: rows have unequal lengths, the mask has another shape, tokens are padded
            without a mask, or a text has no token.
        TypeError: tokens are not integers.
    """
    if is_text(tokens):
        rows, mask = left_pad(_rows_of_text(tokens, tokenizer, prepend_bos))
        if attention_mask is None:
            return rows.to(device), None if bool(mask.all()) else mask.to(device)
    else:
        rows = _as_tensor(tokens)
    if attention_mask is None:
        _refuse_padding(rows, tokenizer)
        return rows.to(device), None
    if attention_mask.shape != rows.shape:
        raise ValueError(
            f"expected a mask of the tokens' shape {tuple(rows.shape)}, found "
            f"{tuple(attention_mask.shape)}; give one entry a token, 0 at padding"
        )
    return rows.to(device), attention_mask.to(device)


def is_text(tokens: Tokens) -> bool:
    """Whether this is a text or a list of texts, and no tokens."""
    return isinstance(tokens, str) or (
        not isinstance(tokens, Tensor) and len(tokens) > 0 and isinstance(tokens[0], str)
    )


def _rows_of_text(text: Any, tokenizer: Any, prepend_bos: bool | None) -> list[list[int]]:
    texts = [text] if isinstance(text, str) else [*text]
    if prepend_bos is None:
        rows = token_rows(tokenizer, texts)
    else:
        rows = text_alone(tokenizer, texts, prepend_bos)
    if not all(rows):
        raise ValueError("expected texts of at least one token, found an empty one; leave it out")
    return rows


def _as_tensor(tokens: Any) -> Int[Tensor, "batch pos"]:
    if not isinstance(tokens, Tensor):
        lengths = sorted({len(row) for row in tokens if not isinstance(row, int)})
        if len(lengths) > 1:
            raise ValueError(
                f"expected prompts of one length, found lengths {lengths}; pad them on the left "
                "and give attention_mask, or run them by length"
            )
        tokens = torch.stack([torch.as_tensor(row) for row in tokens])
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise TypeError(f"expected token ids (integers), found {tokens.dtype}")
    if tokens.ndim not in (1, 2) or tokens.numel() == 0:
        raise ValueError(f"expected tokens [batch pos], found {list(tokens.shape)}")
    return tokens[None] if tokens.ndim == 1 else tokens


def _refuse_padding(tokens: Int[Tensor, "batch pos"], tokenizer: Any) -> None:
    """Raise ValueError for padding without a mask, which would give wrong logits silently."""
    for pad in {PAD, getattr(tokenizer, "pad_token_id", None)} - {None}:
        padded = tokens[:, 0] == pad
        # If padding and BOS are one token, a first one is BOS if all rows have it.
        is_bos = pad == getattr(tokenizer, "bos_token_id", None)
        n_leading = 2 if is_bos and bool(padded.all()) else 1
        padded = (tokens[:, :n_leading] == pad).all(-1)
        if tokens.shape[1] > n_leading and bool(padded.any()):
            row = int(padded.int().argmax())
            raise ValueError(
                f"expected attention_mask with padded tokens, found none: row {row} starts "
                f"with the padding token {pad}, which the model would read; give the mask (all "
                "ones, if that token is meant)"
            )


@runtime_checkable
class HookedLike(Protocol):
    """What the methods need of a model. HookedModel and a bare TransformerBridge have it."""

    @property
    def cfg(self) -> Any: ...
    @property
    def tokenizer(self) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any: ...
    def run_with_cache(self, *args: Any, **kwargs: Any) -> Any: ...
    def hooks(self, *args: Any, **kwargs: Any) -> Any: ...

    if TYPE_CHECKING:  # torch finds sub-modules by __getattr__, which a run-time check misses

        @property
        def blocks(self) -> Any: ...  # [l].ln2, .mlp, .attn.W_O [n_heads d_head d_model], a view
        @property
        def embed(self) -> Any: ...
        @property
        def W_E(self) -> Any: ...  # [d_vocab d_model], a view
        @property
        def ln_final(self) -> Any: ...
        @property
        def unembed(self) -> Any: ...
        @property
        def W_U(self) -> Any: ...  # [d_model d_vocab], a view


PASSED_ON = ("logits_to_keep", "past_key_values", "use_cache")
"""Options that every decoder takes, some without naming them: they stand in `**kwargs` there."""


@dataclass(frozen=True, eq=False)
class HookedModel:
    """A TransformerBridge that checks its inputs, and makes no KV cache unless requested."""

    bridge: Any
    """The TransformerBridge, with all functions of TransformerLens."""
    name: str
    """The name of the model in results."""

    @property
    def quantised_from(self) -> str | None:
        """The quantisation and the file that the weights come from; None if they are original."""
        return getattr(self.bridge.original_model.config, ORIGIN, None)

    @property
    def cfg(self) -> Any:
        """TransformerLens' configuration: sizes, dtype, device, positional scheme."""
        return self.bridge.cfg

    @property
    def tokenizer(self) -> Any:
        """The model's Hugging Face tokenizer."""
        return self.bridge.tokenizer

    @property
    def first_token(self) -> str | None:
        """What is put in front of every text, such as `<s>` (BOS); None for nothing."""
        return None if self.tokenizer is None else first_token(self.tokenizer)

    @property
    def n_layers(self) -> int:
        """The number of layers, each with attention and an MLP."""
        return int(self.cfg.n_layers)

    @property
    def n_heads(self) -> int:
        """The number of attention (query) heads per layer."""
        return int(self.cfg.n_heads)

    @property
    def n_kv_heads(self) -> int:
        """The number of key and value heads per layer: less than `n_heads` for grouped queries."""
        return int(self.cfg.n_key_value_heads or self.cfg.n_heads)

    @property
    def d_head(self) -> int:
        """The length of a head's output before W_O."""
        return int(self.cfg.d_head)

    @property
    def d_model(self) -> int:
        """The width of the residual stream."""
        return int(self.cfg.d_model)

    @property
    def d_vocab(self) -> int:
        """The number of tokens in the unembedding."""
        return int(self.cfg.d_vocab)

    @property
    def blocks(self) -> Any:
        """The layers: `[l].ln1`, `.attn` (`.W_O`: [n_heads d_head d_model]), `.ln2`, `.mlp`."""
        return self.bridge.blocks

    @property
    def embed(self) -> Any:
        """The token embedding."""
        return self.bridge.embed

    @property
    def ln_final(self) -> Any:
        """The norm before the unembedding."""
        return self.bridge.ln_final

    @property
    def unembed(self) -> Any:
        """The unembedding: from the final norm's output to logits."""
        return self.bridge.unembed

    @property
    def W_U(self) -> Any:
        """The unembedding's weights, [d_model d_vocab], a view."""
        return self.bridge.W_U

    @property
    def W_E(self) -> Any:
        """The token embedding's weights, [d_vocab d_model], a view."""
        return self.bridge.W_E

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, which says what to use in place of TransformerLens' name."""
        instead = INSTEAD.get(name)
        named = instead is None and not name.startswith("_") and "bridge" in vars(self)
        if named and hasattr(self.bridge, name):
            instead = f"model.bridge.{name}, TransformerLens' own, works on the same model"
        raise AttributeError(
            f"expected an attribute of HookedModel, found {name!r}"
            + (f"; {instead}" if instead else "; see dir(model), and model.bridge for the others"),
            name=name,
            obj=self,
        )

    @property
    def device(self) -> torch.device:
        """The device of the embedding, to which tokens are moved."""
        return torch.device(self.cfg.device)

    @property
    def dtype(self) -> torch.dtype:
        """The weights' dtype."""
        return next(self.bridge.parameters()).dtype

    @property
    def attn_implementation(self) -> str:
        """Transformers' name of the attention kernel. Kernels differ in the last digits."""
        return str(self.bridge.original_model.config._attn_implementation)

    def __repr__(self) -> str:
        return (
            f"HookedModel({self.name!r}, n_layers={self.n_layers}, n_heads={self.n_heads}, "
            f"n_kv_heads={self.n_kv_heads}, d_model={self.d_model}, dtype={self.dtype}, "
            f"device={self.device}, first_token={self.first_token!r})"
        )

    def __call__(
        self, tokens: Tokens, *, attention_mask: Tensor | None = None, **options: Any
    ) -> Any:
        """Logits [batch pos d_vocab]; with `logits_to_keep=1`, at END alone.

        Raises:
            ValueError: rows have unequal lengths, or tokens are padded without a mask.
        """
        self._check_options(options)
        tokens, options = self._prepared(tokens, attention_mask, options)
        return self.bridge(tokens, **options)

    def run_with_hooks(
        self,
        tokens: Tokens,
        *,
        fwd_hooks: Iterable[NamedHook],
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Logits of one run with hooks. Raises IndexError if the model lacks a hook's layer."""
        self._check_options(options, self.bridge.run_with_hooks)
        tokens, options = self._prepared(tokens, attention_mask, options)
        fwd_hooks = checked_hooks(fwd_hooks, self)
        return self.bridge.run_with_hooks(tokens, fwd_hooks=fwd_hooks, **options)

    def run_with_cache(
        self, tokens: Tokens, *, attention_mask: Tensor | None = None, **options: Any
    ) -> tuple[Any, Any]:
        """Logits and TransformerLens' ActivationCache. `names_filter` chooses what is cached."""
        self._check_options(options, self.bridge.run_with_cache)
        tokens, options = self._prepared(tokens, attention_mask, options)
        return self.bridge.run_with_cache(tokens, **options)

    def hooks(
        self, fwd_hooks: Iterable[NamedHook] = (), **options: Any
    ) -> AbstractContextManager[Any]:
        """A context in which `fwd_hooks` act on every run."""
        return self.bridge.hooks(fwd_hooks=checked_hooks(fwd_hooks, self), **options)

    def to_tokens(
        self, text: str | Sequence[str], *, prepend_bos: bool | None = None
    ) -> Int[Tensor, "batch pos"]:
        """The tokens of a text or of several, as pairs and `model(text)` have them.

        Texts of unequal lengths are padded on the left. Give the model their mask, or give it the
        texts themselves.

        Args:
            text: one text or several.
            prepend_bos: None: BOS is in front if the checkpoint's tokenizer puts it there, or as
                `load_model(bos=…)` said. False: the text alone, for a part of a prompt. True: with
                BOS.

        Raises:
            ValueError: a text has no token.

        Example:
            >>> import arith_lens as al
            >>> model = al.load_model("reference")
            >>> model.to_str_tokens("3 plus")
            ['<s>', ' ', '3', ' plus']
            >>> model.to_tokens("3 plus", prepend_bos=False).shape
            torch.Size([1, 3])
        """
        return check_tokens(text, None, self.tokenizer, self.device, prepend_bos)[0]

    def to_str_tokens(self, text: Any, **options: Any) -> Any:
        """Each token of a text, or of a row of ids, as text with its blanks.

        The texts of a row make up its whole text. For several texts, or rows [batch pos] of more
        than one, a list per row. Options are those of `to_tokens`.
        """
        if isinstance(text, list | tuple) and text and isinstance(text[0], str):
            return [self.to_str_tokens(one, **options) for one in text]
        tokens = self.to_tokens(text, **options) if isinstance(text, str) else _as_tensor(text)
        rows = [self._token_texts(row) for row in tokens.tolist()]
        return rows[0] if len(rows) == 1 else rows

    def _token_texts(self, ids: list[int]) -> list[str]:
        """The text of each token. Decoding alone loses the blank that SentencePiece writes `▁`."""
        pieces = self.tokenizer.convert_ids_to_tokens(ids)
        texts = [self.tokenizer.decode([token]) for token in ids]
        return [
            f" {text}" if piece.startswith("▁") and not text.startswith(" ") else text
            for piece, text in zip(pieces, texts, strict=True)
        ]

    def to_string(self, tokens: Any) -> Any:
        """The text of tokens; for a batch, one text per row."""
        return self.bridge.to_string(tokens)

    @torch.no_grad()
    def generate(
        self,
        tokens: Tokens,
        *,
        fwd_hooks: Iterable[NamedHook] = (),
        hook_steps: Literal["all", "prompt"] = "all",
        max_new_tokens: int = 10,
        attention_mask: Tensor | None = None,
        do_sample: bool = False,
        **options: Any,
    ) -> Any:
        """Continue the prompts, greedily by default.

        Args:
            tokens: prompts, padded on the left if their lengths differ.
            fwd_hooks: interventions. With the KV cache, each step after the first has one new token
                only.
            hook_steps: `all`: hooks act on the prompt and on every new token; `prompt`: on the
                prompt alone, as hooks with positions need.
            max_new_tokens: the largest number of new tokens.
            attention_mask: the mask of the prompts.
            do_sample: whether to draw tokens instead of using the most likely one.
            options: further options of the bridge's `generate`.

        Returns:
            Prompt and new tokens; text for prompts that are text.

        Raises:
            ValueError: hooks with positions act on every step, prompts have unequal lengths or are
                padded without a mask, or the model is in training mode.
        """
        require_evaluation_mode(self)
        chosen = _hooks_for_steps(checked_hooks(fwd_hooks, self), hook_steps, options)
        options = {"do_sample": do_sample, "verbose": False} | options
        if is_text(tokens):
            options = {"return_type": "str"} | options
        tokens, options = self._as_tokens(tokens, attention_mask, options)
        with self.bridge.hooks(fwd_hooks=chosen), _end_logits_alone(self):
            return self.bridge.generate(tokens, max_new_tokens=max_new_tokens, **options)

    def _check_options(self, options: Mapping[str, Any], *methods: Any) -> None:
        """Raise TypeError for an option that neither the bridge nor the model takes."""
        if not options:
            return
        from transformers.utils.generic import TransformersKwargs

        forwards = (self.bridge.forward, self.bridge.original_model.forward, *methods)
        taken = {name for forward in forwards for name in signature(forward).parameters}
        taken |= {*TransformersKwargs.__annotations__, *PASSED_ON}
        if unknown := sorted({*options} - taken):
            near = get_close_matches(unknown[0], taken, n=1)
            raise TypeError(
                f"expected options of the model's forward, found {', '.join(unknown)}; "
                + (f"write {near[0]!r}" if near else "leave it out")
            )

    def _prepared(
        self, tokens: Tokens, attention_mask: Tensor | None, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        options = {"use_cache": False} | options
        if options.get("past_key_values") is not None:  # the mask then includes earlier tokens
            return tokens, options | {"attention_mask": attention_mask, "use_cache": True}
        return self._as_tokens(tokens, attention_mask, options)

    def _as_tokens(
        self, tokens: Tokens, attention_mask: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """The tokens of a batch, and the options with their mask."""
        require_values(self)
        others = {name: value for name, value in options.items() if name != "prepend_bos"}
        bos = options.get("prepend_bos")
        rows, mask = check_tokens(tokens, attention_mask, self.tokenizer, self.device, bos)
        if rows.device.type == "cpu" and not 0 <= int(rows.min()) <= int(rows.max()) < self.d_vocab:
            raise ValueError(
                f"expected token ids from 0 to {self.d_vocab - 1}, found {int(rows.min())} to "
                f"{int(rows.max())}; make them with this model's tokenizer"
            )
        return rows, others if mask is None else others | {"attention_mask": mask}


@contextmanager
def _end_logits_alone(model: HookedModel) -> Iterator[None]:
    """A context in which forwards compute END's logits alone, unless a hook is at the unembedding.

    TransformerLens asks for the logits of the whole prompt when it generates, and reads END's.
    """
    if any("unembed" in name for name, _ in active_hooks(model)):
        yield
        return
    unembed = model.unembed.original_component
    handle = unembed.register_forward_pre_hook(lambda _, args: (args[0][:, -1:], *args[1:]))
    try:
        yield
    finally:
        handle.remove()


INSTEAD = {
    "add_hook": "hooks last as long as their context here: with model.hooks([(name, function)]):",
    "reset_hooks": "hooks end with their context here; model.bridge.reset_hooks() takes off those "
    "that model.bridge.add_hook put on",
    "to": "choose when loading: load_model(source, device=..., dtype=...)",
    "cuda": "choose when loading: load_model(source, device='cuda')",
    "cpu": "choose when loading: load_model(source, device='cpu')",
    "eval": "the model is in evaluation mode since load_model",
    "train": "the methods need evaluation mode; fine_tune trains",
    "W_O": "model.blocks[layer].attn.W_O is one layer's, [n_heads d_head d_model], a view",
}
"""What to use in place of names that users of TransformerLens know."""


def checked_hooks(hooks: Iterable[NamedHook], model: Any) -> list[NamedHook]:
    """The hooks as a list.

    Raises:
        IndexError: the model lacks a hook's layer, or its heads.
        KeyError: the model has no hook point of this name; the message has the nearest.
    """
    checked = list(hooks)
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    points = getattr(getattr(model, "bridge", model), "hook_dict", {})
    for name, function in checked:
        layer = layer_of(name) if isinstance(name, str) else None
        if layer is not None and layer >= n_layers:
            raise IndexError(
                f"expected hooks in layers 0 to {n_layers - 1}, found {name}; choose components "
                f"of the model's {n_layers} layers"
            )
        heads = getattr(function, "heads", None)
        if heads and max(heads) >= n_heads:
            raise IndexError(
                f"expected heads from 0 to {n_heads - 1} in each layer, found {max(heads)} at "
                f"{name}; heads are written layer.index"
            )
        if isinstance(name, str) and points and name not in points:
            near = get_close_matches(name, [*points], n=3)
            raise KeyError(
                f"expected the name of a hook point, found {name}; "
                + (f"the nearest are {', '.join(near)}" if near else "see model.bridge.hook_dict")
            )
    return checked


def _hooks_for_steps(
    hooks: list[NamedHook], steps: str, options: dict[str, Any]
) -> list[NamedHook]:
    if steps == "prompt":
        if options.get("use_past_kv_cache") is False:
            raise ValueError(
                "expected a KV cache with hook_steps='prompt', found use_past_kv_cache=False: each "
                "step would compute the prompt again, without the hooks"
            )
        return [(name, _first_call_only(function)) for name, function in hooks]
    if steps != "all":
        raise ValueError(f"expected hook_steps 'all' or 'prompt', found {steps!r}")
    if any(getattr(function, "positions", None) is not None for _, function in hooks):
        raise ValueError(
            "expected hooks without positions, found some with: positions count in the prompt, and "
            "a later step holds one new token; pass hook_steps='prompt', or hooks for every "
            "position"
        )
    return hooks


def _first_call_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that acts on the first step of a generation only, which is the prompt."""
    calls = count()

    def on_the_prompt(activation: Tensor, hook: Any) -> Tensor | None:
        return function(activation, hook=hook) if next(calls) == 0 else None

    return on_the_prompt
