"""Tiny random models and a toy tokenizer with LLaMA-2's conventions; no network needed."""

import functools
import os
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import type_checks

type_checks.install()  # before the package is imported

from support.fresh import FreshPython, take_steps  # noqa: E402

import arith_lens  # noqa: E402
from arith_lens.model import HookedModel, empty_model, load_model  # noqa: E402
from arith_lens.pairs import PromptPairs, sample_pairs  # noqa: E402

WORDS = """
    plus minus times over addition subtraction multiplication division sum difference product ratio
    power equals equal to the of and is are and The Q A How much What What's result between from by
    raised has have had gains gain loses lose more many total number cups tables minutes hours days
    answer John Mary none nothing null void blank empty nil nowhere nobody story color
    year month week lasted started began ended went will end in year June July May March event
"""
SYMBOLS = "+-*/^=<>@#&~%$|"


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """`3 plus 5 = ` is `<s> ▁ 3 ▁plus ▁ 5 ▁= ▁`: digits alone, known words one piece.

    Every prefix of a known word is a piece too, so that a word grows from `▁` letter by letter;
    words that are not known fall apart into a known beginning and single letters.
    """
    from transformers import LlamaTokenizer

    letters = sorted(set(string.printable) - set(string.whitespace))
    vocab = dict.fromkeys(["<unk>", "<s>", "</s>", "▁", "\n", *letters])
    merges: dict[tuple[str, str], None] = {}
    for word in [*WORDS.split(), *SYMBOLS]:
        piece = "▁"
        for letter in word:
            merges[piece, letter] = None
            piece += letter
            vocab[piece] = None
    ids = {piece: index for index, piece in enumerate(vocab)}
    return LlamaTokenizer(vocab=ids, merges=list(merges), add_bos_token=True)


HFFactory = Callable[..., Any]


@pytest.fixture(scope="session")
def make_hf(tokenizer: Any) -> HFFactory:
    """Build a random Hugging Face model: `make_hf("llama" | "mistral" | "qwen3", **config)`."""

    def make(family: str = "llama", *, seed: int = 0, **config: Any) -> Any:
        import transformers

        sizes = {
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 128,
            "initializer_range": 0.15,  # large enough that each head tells in the logits
            "attn_implementation": "eager",
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        if family == "mistral":  # grouped queries; a window shorter than the sequences
            sizes |= {"num_key_value_heads": 2, "sliding_window": 6}
        names = {"llama": "Llama", "mistral": "Mistral", "qwen3": "Qwen3"}
        settings = getattr(transformers, f"{names[family]}Config")(**sizes | config)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = getattr(transformers, f"{names[family]}ForCausalLM")(settings).eval()
            for name, weight in model.named_parameters():
                if "norm" in name:  # ones would hide a forgotten norm weight
                    weight.data.uniform_(0.5, 1.5)
        return model

    return make


@pytest.fixture(scope="module")
def checkpoint(make_hf: HFFactory, tokenizer: Any, tmp_path_factory: Any) -> Path:
    """The folder of a tiny random model in Hugging Face's format."""
    folder = tmp_path_factory.mktemp("tiny")
    make_hf("llama").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def source(make_hf: HFFactory, tokenizer: Any) -> tuple[Any, Any]:
    """A small grouped-query model to be tuned, and its tokenizer."""
    return make_hf("mistral"), tokenizer


@pytest.fixture(scope="session")
def make_model(make_hf: HFFactory, tokenizer: Any) -> Callable[..., HookedModel]:
    """The same model, loaded: `make_model("llama" | "mistral", seed=0, **config)`."""

    def make(family: str = "llama", *, seed: int = 0, **config: Any) -> HookedModel:
        return load_model((make_hf(family, seed=seed, **config), tokenizer))

    return make


@pytest.fixture(scope="session")
def llama(make_model: Callable[..., HookedModel]) -> HookedModel:
    """3 layers, 4 heads, d_model 32."""
    return make_model("llama")


@pytest.fixture(scope="session")
def mistral(make_model: Callable[..., HookedModel]) -> HookedModel:
    """3 layers, 4 heads that share 2 key-value heads, a sliding window of 6 tokens."""
    return make_model("mistral")


@pytest.fixture(scope="session")
def deep(make_model: Callable[..., HookedModel]) -> HookedModel:
    """13 layers, so that some have two digits; 2 heads, d_model 16."""
    return make_model(
        "llama",
        num_hidden_layers=13,
        num_attention_heads=2,
        hidden_size=16,
        intermediate_size=24,
        initializer_range=0.2,
    )


@pytest.fixture(params=["llama", "mistral"])
def model(request: pytest.FixtureRequest) -> HookedModel:
    """Each of the two families in turn. Hooks leave no trace, so that tests share them."""
    return request.getfixturevalue(request.param)


SHIPPED = ("reference", "reference-mistral")


class SharedModels:
    """`load_model`, which loads each shipped model once, and the weights that nothing may change.

    Loading takes half a second, most of it in TransformerLens. The pairs that such a model answers
    right are sampled once too, and so are those of dry runs.
    """

    def __init__(self) -> None:
        self._loaded: dict[Any, HookedModel] = {}
        self._empty: dict[Any, HookedModel] = {}
        self._weights: dict[Any, tuple[list[torch.Tensor], list[int]]] = {}
        self._pairs: dict[tuple[int, str], PromptPairs] = {}

    def sample_pairs(self, model: Any, *choices: Any, **options: Any) -> PromptPairs:
        if all(model is not kept for kept in (*self._loaded.values(), *self._empty.values())):
            return sample_pairs(model, *choices, **options)
        key = id(model), repr((choices, sorted(options.items())))
        if key not in self._pairs:
            self._pairs[key] = sample_pairs(model, *choices, **options)
        return self._pairs[key]

    def load(self, source: Any, **options: Any) -> HookedModel:
        settings = {name: option for name, option in options.items() if option is not None}
        if not isinstance(source, str) or source not in SHIPPED or settings not in ({}, ON_CPU):
            return load_model(source, **options)
        key = source, *settings
        if key not in self._loaded:
            model = self._loaded[key] = load_model(source, **options)
            weights = [*model.bridge.original_model.parameters()]
            self._weights[key] = weights, [weight._version for weight in weights]
        return self._loaded[key]

    def empty(self, source: Any, **options: Any) -> HookedModel:
        """A model without weights: `empty_model`."""
        key = source, *sorted(options.items())
        if key not in self._empty:
            self._empty[key] = empty_model(source, **options)
        return self._empty[key]

    def changed(self) -> list[Any]:
        """The models whose weights were written to; these are loaded anew."""
        changed = [
            key
            for key, (weights, versions) in self._weights.items()
            if any(was != weight._version for was, weight in zip(versions, weights, strict=True))
        ]
        for key in changed:
            del self._loaded[key], self._weights[key]
        if changed:
            self._pairs.clear()
        return changed


ON_CPU = {"device": "cpu"}


@pytest.fixture(scope="session", autouse=True)
def shared_models() -> Iterator[SharedModels]:
    """What `al.load_model` and `al.sample_pairs` are in all tests.

    `arith_lens.model.load_model` and `arith_lens.pairs.sample_pairs` are the real ones.
    """
    shared = SharedModels()

    @functools.wraps(load_model)
    def load(source: Any, **options: Any) -> HookedModel:
        return shared.load(source, **options)

    def sample(*choices: Any, **options: Any) -> PromptPairs:
        return shared.sample_pairs(*choices, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arith_lens, "load_model", load)
        patched.setattr(arith_lens, "sample_pairs", functools.wraps(sample_pairs)(sample))
        yield shared


@pytest.fixture(autouse=True)
def shared_models_stay_as_they_are(shared_models: SharedModels) -> Iterator[None]:
    yield
    assert shared_models.changed() == [], "load a model of your own to change it"


@pytest.fixture(scope="module")
def rough_intervals() -> Iterator[None]:
    """Few resamples, for figures and tables whose intervals are drawn and not judged."""
    from arith_lens.effects import effects

    precise = effects.studentised_interval

    def rough(*sample: Any, **options: Any) -> Any:
        return precise(*sample, **options | {"n_resamples": 50})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(effects, "studentised_interval", rough)
        yield


@pytest.fixture(scope="session")
def empty_models(shared_models: SharedModels) -> Callable[..., HookedModel]:
    """`empty_model`, which makes each model once: dry runs leave it as it is."""
    return shared_models.empty


def random_tokens(model: Any, *shape: int, seed: int = 0) -> torch.Tensor:
    """BOS, then random ids that are not special, Int[Tensor, "batch pos"]."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, model.cfg.d_vocab, shape, generator=generator)
    tokens[:, 0] = 1
    return tokens


@pytest.fixture
def reference(llama: HookedModel) -> torch.Tensor:
    """Six prompts of ten tokens, longer than the sliding window."""
    return random_tokens(llama, 6, 10, seed=1)


@pytest.fixture
def counterfactual(reference: torch.Tensor) -> torch.Tensor:
    """The same prompts with other tokens at positions 3 and 5."""
    other = reference.clone()
    other[:, [3, 5]] = (other[:, [3, 5]] + 17) % 200 + 3
    return other


@pytest.fixture(scope="session")
def fresh_python(tmp_path_factory: pytest.TempPathFactory) -> FreshPython:
    """What a fresh Python has imported, step after step."""
    return take_steps(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Where the real tokenizers are: ARITH_LENS_DATA, or ../shared/data beside the repository."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    directory = Path(os.environ.get("ARITH_LENS_DATA", beside))
    if not directory.is_dir():
        pytest.skip(f"needs the data folder ({directory} is absent; set ARITH_LENS_DATA)")
    return directory


@pytest.fixture(scope="session")
def real_tokenizer(data_directory: Path) -> Callable[[str], Any]:
    """A published tokenizer, read once: `real_tokenizer("llama2" | "mistral" | "llama3")`."""
    from experiments.datasets import published_tokenizer

    @functools.cache
    def read(name: str) -> Any:
        folder = data_directory / "tokenizers" / name
        if not (folder / "tokenizer.model").is_file():
            pytest.skip(f"needs {folder}/tokenizer.model")
        return published_tokenizer(folder)

    return read
