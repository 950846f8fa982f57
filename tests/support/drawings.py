"""Files that figures wrote in tests."""

import gzip
import re
from base64 import b64decode
from pathlib import Path

from experiments.questions import exhibit_entries
from figures.exhibit import NUMBERED


def written(folder: Path, name: str) -> Path:
    """The file of an exhibit's name: `where_do_they_look-made.csv` for `fig5.csv`."""
    stem, _, ending = name.rpartition(".")
    question = NUMBERED.sub(lambda found: exhibit_entries()[found[0]][1].file, stem)
    (path,) = folder.glob(f"{question}-*.{ending}")
    return path


def unpacked(page: str) -> str:
    """A page in which the data of its charts and views are text."""
    return re.sub(
        r'(<script type="text/plain"[^>]*>)([^<]+)',
        lambda found: found[1] + gzip.decompress(b64decode(found[2])).decode(),
        page,
    )
