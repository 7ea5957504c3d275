"""The checks of the docs notice what they are there to notice. Run by scripts/check-docs."""

import tempfile
import unittest
from pathlib import Path

from markdown import ROOT, Page
from repository_links import walk
from run import Mismatch, Run, as_installed, commands_of, matches
from static import leads_somewhere, untested


def page(text: str) -> Page:
    return Page(ROOT / "docs/README.md", text)


class Blocks(unittest.TestCase):
    def test_block_that_nothing_tests_is_a_problem(self) -> None:
        [block] = page("```python\nprint(1)\n```\n").blocks
        self.assertIn("says neither", untested(block) or "")

    def test_block_with_a_reason_or_a_file_is_none(self) -> None:
        for words in ("skip=no-engine-here", "save=a.py", "tested-by=scripts/docs/test_checks.py"):
            [block] = page(f"```python {words}\nprint(1)\n```\n").blocks
            self.assertIsNone(untested(block), words)

    def test_lines_that_are_not_in_the_file_they_name_are_a_problem(self) -> None:
        [there] = page("```python from=scripts/docs/run.py\nclass Mismatch(Exception):\n```\n").blocks
        [absent] = page("```python from=scripts/docs/run.py\nclass Matching(Exception):\n```\n").blocks
        self.assertIsNone(untested(there))
        self.assertIn("are not those of", untested(absent) or "")

    def test_test_that_does_not_exist_is_a_problem(self) -> None:
        [block] = page("```js tested-by=scripts/nothing.js\n1\n```\n").blocks
        self.assertIn("there is no", untested(block) or "")


class Links(unittest.TestCase):
    def test_links_to_files_and_headings_must_be_there(self) -> None:
        here = page("# One\n\n## Two & three\n")
        for link in ("#one", "#two--three", "mcp.md", "mcp.md#what-survives", "https://example.com/"):
            self.assertTrue(leads_somewhere(here, link), link)
        for link in ("#four", "nothing.md", "mcp.md#nothing"):
            self.assertFalse(leads_somewhere(here, link), link)

    def test_links_out_of_the_site_become_names(self) -> None:
        chapter = {"path": "decisions/one.md", "content": "[a](../b.md) [c](../../d.rs)"}
        walk(chapter)
        self.assertEqual(chapter["content"], "[a](../b.md) c (`d.rs` in the repository)")


class Running(unittest.TestCase):
    def test_commands_are_told_from_what_they_print(self) -> None:
        self.assertEqual(commands_of("$ a \\\n> b\none\n$ c\n"), [("a \\\nb", "one\n"), ("c", "")])

    def test_ellipsis_stands_for_anything_and_nothing_else_does(self) -> None:
        self.assertTrue(matches("a …\n…\nlast", "a 1\nb\nc\nlast\n"))
        self.assertTrue(matches("…\nlast", "last\n"))
        self.assertFalse(matches("a …\nlast", "a 1\nb\nlast\n"))
        self.assertFalse(matches("a", "a\nb\n"))

    def test_packages_come_from_the_repository(self) -> None:
        self.assertIn(str(ROOT / "clients/python"), as_installed("pip install rejoin-client"))

    def test_command_that_fails_or_prints_something_else_is_noticed(self) -> None:
        for console in ("$ false\n", "$ echo two\none\n"):
            with tempfile.TemporaryDirectory() as directory, self.assertRaises(Mismatch):
                [block] = page(f"```console\n{console}```\n").blocks
                Run(Path(directory)).block(block)

    def test_server_that_does_not_start_is_noticed(self) -> None:
        with tempfile.TemporaryDirectory() as directory, self.assertRaises(Mismatch):
            [block] = page("```console serve\n$ false\n```\n").blocks
            Run(Path(directory)).block(block)


if __name__ == "__main__":
    unittest.main()
