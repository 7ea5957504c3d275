"""The checks of the docs notice what they are there to notice. Run by scripts/check-docs."""

import tempfile
import unittest
from pathlib import Path

import site_links
from markdown import ROOT, Page
from repository_links import walk
from run import Mismatch, Run, as_installed, commands_of, matches
from static import conformance_cases, leads_somewhere, untested, wrong_counts


#: A server that is well and has nothing to show, as a binary that was built without pages.
WITHOUT_PAGES = """#!/usr/bin/env python3
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

host, port = os.environ["REJOIN_LISTEN"].split(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


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


    def test_front_pages_of_folders_are_index_html_on_the_site(self) -> None:
        chapter = {"path": "a.md", "content": "[a](README.md#b) [c](d/README.md) [e](../README.md)"}
        walk(chapter)
        self.assertEqual(chapter["content"], "[a](index.md#b) [c](d/index.md) e (`README.md` in the repository)")

    def test_links_of_the_built_site_must_lead_to_a_file_and_a_heading_of_it(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            good = '<h1 id="one">1</h1><a href="#one"></a><a href="b.html#two"></a><a href="https://example.com/"></a>'
            Path(directory, "a.html").write_text(good)
            Path(directory, "b.html").write_text('<h1 id="two">2</h1><a href="README.html"></a><a href="a.html#two"></a>')
            expected = [f"b.html: the link {link} leads nowhere" for link in ("README.html", "a.html#two")]
            self.assertEqual(site_links.problems_of(Path(directory)), expected)

    def test_number_of_conformance_cases_is_the_real_one(self) -> None:
        self.assertEqual(wrong_counts(page(f"{conformance_cases()} cases in JSON\n")), [])
        self.assertEqual(len(wrong_counts(page("12 cases in JSON\n"))), 1)


class Running(unittest.TestCase):
    def test_clone_beside_the_reader_is_this_repository(self) -> None:
        self.assertEqual(as_installed("npm install ../rejoin/clients/js ws"), f"npm install {ROOT}/clients/js ws")

    def test_server_without_pages_is_a_mismatch(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            run = Run(Path(directory))
            program = Path(directory, "rejoin")
            program.write_text(WITHOUT_PAGES)
            program.chmod(0o755)
            run.environment["PATH"] = f"{directory}:{run.environment['PATH']}"
            try:
                with self.assertRaisesRegex(Mismatch, "has no pages"):
                    run.serve("rejoin", "")
            finally:
                run.end_all()

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
