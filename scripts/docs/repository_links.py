"""A preprocessor for mdBook: links to files outside of docs/ lead nowhere on the site, so they become the file's name,
and links to a README.md lead to what mdBook makes of it, index.html.

mdBook gives the whole book as JSON on standard input, and takes it back on standard output.
"""

import json
import re
import sys

OUTSIDE = re.compile(r"\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<path>(?:\.\./)+[^)\s#]+)[^)\s]*\)")

FRONT_PAGE = re.compile(r"(\]\((?:[^)\s#:]*/)?)README\.md(?=[)#])")


def plain(found: re.Match[str]) -> str:
    """`text` alone if it names the file already, else with the file behind it."""
    path = re.sub(r"^(\.\./)+", "", found["path"])
    text = found["text"]
    return text if path in text else f"{text} (`{path}` in the repository)"


def walk(item: object, depth: int = 0) -> None:
    """Changes the content of every chapter. A page in a folder of docs/ has one `../` that stays inside."""
    if isinstance(item, dict):
        if "content" in item and isinstance(item.get("path"), str):
            inside = item["path"].count("/")
            pattern = re.compile(OUTSIDE.pattern.replace(r"(?:\.\./)+", r"(?:\.\./){%d,}" % (inside + 1)))
            item["content"] = FRONT_PAGE.sub(r"\1index.md", pattern.sub(plain, item["content"]))
        for value in item.values():
            walk(value)
    elif isinstance(item, list):
        for value in item:
            walk(value)


def main() -> None:
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    walk(book)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
