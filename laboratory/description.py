"""What a registry shows of the package: README.md with links that work there, and its addresses.

hatchling calls it for every build. One setting has the project's address, `address` in
pyproject.toml. Without it, links to files of the repository are their words alone.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.DOTALL)
SOURCE = re.compile(r'((?:src|srcset)=")(?!https?:)')
LINK = re.compile(r"\[([^]]+)\]\((?!https?:)([^)\s]+)\)")


class Description(MetadataHookInterface):
    """The long description and the addresses, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata."""
        address = self.config["address"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = described(text, address, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {"Documentation": "docs/README.md", "Changelog": "CHANGELOG.md"}
        names = {"Source": "", "Issues": "/issues"}
        names |= {name: f"/blob/main/{page}" for name, page in pages.items()}
        metadata["urls"] = {name: address + path for name, path in names.items()} if address else {}


def described(text: str, address: str, version: str) -> str:
    """The README of a version, with links to the repository at the address, or without links."""
    if not address:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    text = SOURCE.sub(rf"\g<1>{address}/raw/{version}/", text)
    return LINK.sub(rf"[\1]({address}/blob/{version}/\2)", text)
