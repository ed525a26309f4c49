"""The part of a document between two markers is ours; the rest is its author's."""

from __future__ import annotations

import shutil
from pathlib import Path

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def rewrite(document: Path, tables: str, picture: Path) -> None:
    """Put the tables between the markers and the picture beside the document. Raises ValueError without markers."""
    text = document.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"{document}: {BEGIN} and {END} must be in it")
    beside = document.with_suffix(picture.suffix)
    shutil.copyfile(picture, beside)
    image = f"![Latency and throughput]({beside.name})"
    document.write_text(f"{before}{BEGIN}\n{image}\n\n{tables}{END}{after}")
