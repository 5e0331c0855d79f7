#!/usr/bin/env python3
"""The book's pages keep their form, the code that they quote is that of its file, and concept figures are drawn in one
style: run by ctest, and by

    python3 -m unittest discover -s tests/docs -p 'book_test.py'

- <!-- code: FILE --> above a ```cpp block: its lines follow each other in FILE. "…" on a line of its own stands for lines
  that are left out. Leading blanks do not count, so that a quote may begin at the margin.
- <!-- diff: OLD NEW --> above a ```diff block: lines with "-" and " " are in OLD, lines with "+" and " " in NEW, in their order.
"""

import pathlib
import re
import shutil
import subprocess
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "chapters/*/*.md", "docs/*.md", "docs/reference/*.md")
QUOTE = re.compile(r"^<!-- code: (\S+) -->\n```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^<!-- diff: (\S+) (\S+) -->\n```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"^<!-- (?:code|diff): ", re.MULTILINE)
GAP = "…"
CONCEPTS = "docs/figures/concept"
IMAGE = re.compile(r"^!\[([^]]*)\]\(\S*figures/concept/([\w-]+\.svg)\)\n(.*)", re.MULTILINE)


def pages():
    return sorted(page for form in PAGES for page in ROOT.glob(form))


def stripped(text):
    return [line.strip() for line in text.splitlines()]


def is_in(quote, lines):
    """Whether the runs of lines between the gaps of a quote are in the lines, one after the other."""
    begin = 0
    for run in "\n".join(quote).split(f"\n{GAP}\n"):
        run = run.split("\n")
        begin = next((i + len(run) for i in range(begin, len(lines)) if lines[i : i + len(run)] == run), None)
        if begin is None:
            return False
    return True


def in_order(quote, lines):
    """Whether the lines of a quote are in the lines, in their order, with any between them."""
    rest = iter(lines)
    return all(any(line == other for other in rest) for line in quote)


class QuotedCode(unittest.TestCase):
    def test_it_is_what_its_file_has(self):
        for page in pages():
            text = page.read_text(encoding="utf-8")
            quotes, diffs = QUOTE.findall(text), DIFF.findall(text)
            self.assertEqual(len(MARK.findall(text)), len(quotes) + len(diffs), f"{page}: a mark without its block")
            for file, quote in quotes:
                with self.subTest(page=page, file=file, begins=quote[:60]):
                    self.assertTrue(is_in(stripped(quote), stripped((ROOT / file).read_text(encoding="utf-8"))))
            for old, new, diff in diffs:
                for file, kept in ((old, "- "), (new, "+ ")):
                    side = [line[1:].strip() for line in diff.splitlines() if line[:1] in kept and line.strip() not in ("", GAP)]
                    with self.subTest(page=page, file=file, diff=diff[:60]):
                        self.assertTrue(in_order(side, stripped((ROOT / file).read_text(encoding="utf-8"))))

    def test_a_changed_line_is_found(self):
        lines = ["a", "b", "c", "d", "e"]
        self.assertTrue(is_in(["b", "c"], lines))
        self.assertTrue(is_in(["b", GAP, "d", "e"], lines))
        self.assertFalse(is_in(["b", "d"], lines))
        self.assertFalse(is_in(["d", GAP, "b"], lines))
        self.assertFalse(in_order(["d", "b"], lines))


class Chapters(unittest.TestCase):
    MAX_WORDS = 1400  # besides code and quoted output: a page that takes 10 to 20 minutes

    def test_each_has_its_parts_and_is_short(self):
        for page in sorted(ROOT.glob("chapters/0*/README.md")):
            text = page.read_text(encoding="utf-8")
            with self.subTest(page=page.parent.name):
                prose = re.sub(r"^```.*?^```$|^<!-- printed -->.*?^<!-- end -->$|<!--.*?-->", "", text, flags=re.M | re.S)
                self.assertLessEqual(len(prose.split()), self.MAX_WORDS)
                self.assertRegex(text, r"\A# Chapter \d: .*\n\n> \*\*You will learn\*\*")
                headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
                for begin in ("The idea", "The program", "Try it", "What it costs", "Remember", "Where to go"):
                    self.assertTrue(any(heading.startswith(begin) for heading in headings), begin)
                self.assertIn("docs/figures/concept/", text)
                self.assertIn("](exercises.md)", text)


class WalkThroughs(unittest.TestCase):
    def test_the_changes_that_they_make_still_fit(self):  # scripts/nightly.sh builds them
        if not (ROOT / ".git").exists() or not shutil.which("git"):
            self.skipTest("not a clone, or git is not installed")
        for patch in sorted(ROOT.glob("docs/extending/*.patch")):
            with self.subTest(patch=patch.name):
                done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)


class ConceptFigures(unittest.TestCase):
    def test_each_says_what_it_shows_and_fits_a_page(self):
        styles = set()
        for figure in sorted((ROOT / CONCEPTS).glob("*.svg")):
            with self.subTest(figure=figure.name):
                text = figure.read_text(encoding="utf-8")
                root = xml.fromstring(text)
                names = [child.tag.split("}")[1] for child in root]
                self.assertEqual(names[:3], ["title", "desc", "style"])
                self.assertLessEqual(float(root.get("width")), 720)
                self.assertEqual(root.get("viewBox").split()[:3], ["0", "0", root.get("width")])
                self.assertEqual(root.get("role"), "img")
                self.assertGreater(len(root[0].text), 10)
                self.assertGreater(len(root[1].text), 40)
                self.assertFalse([size for size in re.findall(r"font(?:-size)?: ?(?:\d+ )?([\d.]+)px", text) if float(size) < 12])
                self.assertNotRegex(text, r'font-size="|fill="#|stroke="#')  # colours and sizes are those of the classes
                self.assertIn("prefers-color-scheme: dark", text)
                if "animation:" in text:
                    self.assertIn("prefers-reduced-motion: reduce", text)
                styles.add(re.search(r"\.forward \{.*?\n", text).group())
        self.assertLessEqual(len(styles), 1, "one palette for all")

    def test_each_is_shown_with_a_text_and_a_caption(self):
        shown = set()
        for page in pages():
            for alt, name, caption in IMAGE.findall(page.read_text(encoding="utf-8")):
                shown.add(name)
                with self.subTest(page=page, figure=name):
                    self.assertTrue((ROOT / CONCEPTS / name).is_file())
                    self.assertGreater(len(alt), 20)
                    self.assertTrue(caption.startswith("*Figure "), "the caption in italics is on the line after the image")
        self.assertEqual(shown, {figure.name for figure in (ROOT / CONCEPTS).glob("*.svg")})


if __name__ == "__main__":
    unittest.main()
