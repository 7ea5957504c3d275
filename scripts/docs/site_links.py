"""Checks the built site: each link and picture of a page leads to a file of the site, and to a heading that is there.

    python3 scripts/docs/site_links.py target/book

static.py has looked at the Markdown; this finds what mdBook makes of it, such as README.md, which becomes index.html.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Made by mdBook from all pages together, or for any address: their links are not those of a page.
NO_PAGES = {"print.html", "404.html"}


class Html(HTMLParser):
    """The links of a page and the names that links can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name, tag) in {("href", "a"), ("href", "link"), ("src", "img"), ("src", "script")}:
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.names.add(value)


def problems_of(site: Path) -> list[str]:
    pages = {path.resolve(): Html(path.read_text()) for path in site.rglob("*.html")}
    problems: list[str] = []
    for path, page in sorted(pages.items()):
        name = path.relative_to(site.resolve())
        if path.name not in NO_PAGES:
            problems += [f"{name}: the link {link} leads nowhere" for link in page.links if not leads(link, path, pages)]
    return problems


def leads(link: str, path: Path, pages: dict[Path, Html]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # of other sites; nothing is asked over the network
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].names


def main() -> None:
    problems = problems_of(Path(sys.argv[1]))
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
