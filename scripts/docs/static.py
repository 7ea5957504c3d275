"""Checks pages without running anything: links, the list of pages of the site, and that each block of code says how it
is tested. Part of scripts/check-docs.

Words behind a block's language:

    (nothing)        console and toml blocks are run or read by scripts/docs/run.py
    save=NAME        written to that file when the page is run
    serve            console: its commands are servers, which go on while the page is run
    from=PATH        its lines are in that file, in this order, and the file's own tests run it
    tested-by=PATH   that file tests it
    skip=why-not     not run, for this reason
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from markdown import ROOT, RUNNABLE, Block, Page, pages

SUMMARY = ROOT / "docs/SUMMARY.md"


def main() -> None:
    all_pages = pages()
    problems = [problem for page in all_pages for problem in problems_of(page)]
    problems += missing_in_summary(all_pages) + slow_to_start()
    for problem in problems:
        print(problem, file=sys.stderr)
    blocks = [block for page in all_pages for block in page.blocks if block.language in RUNNABLE]
    skipped = [block for block in blocks if block.word("skip")]
    print(f"{len(all_pages)} pages, {len(blocks)} blocks of code, {len(skipped)} of them not run:")
    for block in skipped:
        print(f"  {block.place}: {block.word('skip')}")
    sys.exit(1 if problems else 0)


def problems_of(page: Page) -> list[str]:
    name = page.path.relative_to(ROOT)
    broken = [f"{name}: the link {link} leads nowhere" for link in page.links if not leads_somewhere(page, link)]
    return broken + wrong_counts(page) + [f"{block.place}: {why}" for block in page.blocks if (why := untested(block))]


def wrong_counts(page: Page) -> list[str]:
    """Numbers of conformance cases that are not the number there is."""
    told = {int(found) for found in re.findall(r"(\d+) (?:conformance )?cases\b", page.prose)}
    there = conformance_cases()
    if page.path.name == "CHANGELOG.md":
        return []  # it tells what was
    return [f"{page.path.relative_to(ROOT)}: {number} cases, and there are {there}" for number in told - {there}]


def conformance_cases() -> int:
    return sum(len(json.loads(file.read_text())["cases"]) for file in (ROOT / "conformance/cases").glob("*.json"))


def leads_somewhere(page: Page, link: str) -> bool:
    if "://" in link or link.startswith("mailto:"):
        return True  # of other sites; nothing is asked over the network
    path, _, anchor = link.partition("#")
    if not path:
        return anchor in page.anchors
    target = (page.path.parent / path).resolve()
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in Page(target, target.read_text()).anchors


def untested(block: Block) -> str | None:
    """Why nothing tests the block."""
    if block.language not in RUNNABLE or block.word("skip") or block.word("save"):
        return None
    if source := block.word("from"):
        return None if is_part_of(block, ROOT / source) else f"its lines are not those of {source}"
    if test := block.word("tested-by"):
        return None if (ROOT / test).exists() else f"there is no {test}"
    if block.language in ("console", "toml"):
        return None  # run by run.py
    return f"this {block.language} block says neither save=, from=, tested-by= nor skip="


def is_part_of(block: Block, path: Path) -> bool:
    """Whether the block's lines are in the file in this order; the file may have more, and comment marks before them."""
    if not path.exists():
        return False
    lines = iter(
        line.lstrip().removeprefix("//!").removeprefix("///").strip() for line in path.read_text().splitlines()
    )
    return all(any(wanted.strip() == line for line in lines) for wanted in block.text.splitlines() if wanted.strip())


def missing_in_summary(all_pages: list[Page]) -> list[str]:
    listed = {(SUMMARY.parent / link).resolve() for link in Page(SUMMARY, SUMMARY.read_text()).links}
    of_site = [page.path for page in all_pages if page.path.is_relative_to(SUMMARY.parent) and page.path != SUMMARY]
    return [f"docs/SUMMARY.md does not name {path.relative_to(ROOT)}" for path in of_site if path not in listed]


def slow_to_start() -> list[str]:
    """Pages for one kind of reader begin with a command."""
    section = SUMMARY.read_text().split("# Start here")[1].split("\n# ")[0]
    first = {
        link: Page(path, path.read_text()).blocks[:1]
        for link in Page(SUMMARY, section).links
        for path in [SUMMARY.parent / link]
    }
    return [
        f"docs/{link} does not begin with a command"
        for link, blocks in first.items()
        if not blocks or blocks[0].language != "console"
    ]


if __name__ == "__main__":
    main()
