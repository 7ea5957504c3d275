"""Reads Markdown pages: their fenced blocks, their links and their headings."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Languages whose blocks somebody might run. Others (text, json, mermaid) are pictures of something.
RUNNABLE = {"sh", "bash", "console", "python", "js", "jsx", "rust", "html", "toml"}

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\((?P<inline>[^)\s]+)\)|(?:src|srcset)=\"(?P<tag>[^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. The words behind its language say how it is checked."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def word(self, name: str) -> str | None:
        """The value of `name=value`."""
        return next((word.split("=", 1)[1] for word in self.words if word.startswith(f"{name}=")), None)

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    @property
    def blocks(self) -> list[Block]:
        return [self._block(found) for found in FENCE.finditer(self.text)]

    def _block(self, found: re.Match[str]) -> Block:
        language, *words = found["info"].split() or [""]
        line = self.text.count("\n", 0, found.start()) + 1
        return Block(self.path, line, language, tuple(words), found["text"])

    @property
    def prose(self) -> str:
        """The page without its blocks and without code in its lines."""
        return re.sub(r"`[^`\n]*`", "``", FENCE.sub("", self.text))

    @property
    def links(self) -> list[str]:
        pictures = [found["inline"] or found["tag"] for found in PICTURE.finditer(self.prose)]
        return [found["target"] for found in LINK.finditer(self.prose)] + pictures

    @property
    def anchors(self) -> set[str]:
        """The names of its headings, as GitHub and mdBook make them."""
        anchors: set[str] = set()
        for found in HEADING.finditer(FENCE.sub("", self.text)):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found["text"])
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = next(number for number in range(1000) if (f"{name}-{number}" if number else name) not in anchors)
            anchors.add(f"{name}-{number}" if number else name)
        return anchors


def pages() -> list[Page]:
    """Every Markdown page that is part of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in sorted(set(listed.stdout.split()))]
    return [Page(path, path.read_text()) for path in paths if path.exists()]
