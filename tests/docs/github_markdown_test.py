#!/usr/bin/env python3
"""What Doxygen gets to read of a page: python3 -m unittest discover -s tests/docs -p '*_test.py'"""

import pathlib
import sys
import unittest
from xml.etree import ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs"))
from github_markdown import Page  # noqa: E402
from mathml import FormulaError, mathml  # noqa: E402


def doxygen(markdown, path="chapters/03_gpipe/README.md"):
    return Page(path).doxygen(markdown)


class GithubMarkdown(unittest.TestCase):
    def test_links(self):
        for link, wanted in (
            ("[a\nb](../../docs/clusters.md)", "[a b](@ref clusters)"),
            ("[a](../../docs/bibliography.md#li2020)", "[a](@ref bibliography-li2020)"),
            ("[a](#two-clocks)", "[a](@ref chapters_03_gpipe-two-clocks)"),
            ("[`main.cpp`](main.cpp)", "[main.cpp](@ref chapters/03_gpipe/main.cpp)"),
            ("[a](https://ui.perfetto.dev)", "[a](https://ui.perfetto.dev)"),
            ("[MIT](../../LICENSE)", "MIT"),
            ("[m](../../docs/measurements/)", "[m](@ref measurements)"),
        ):
            with self.subTest(link):
                self.assertEqual(doxygen(link), wanted)

    def test_the_front_page_has_the_others_below_it(self):
        page = "[a](clusters.md) and [b](clusters.md)"
        self.assertEqual(doxygen(page, "docs/mainpage.md"), '@subpage clusters "a" and [b](@ref clusters)')

    def test_places(self):
        self.assertEqual(doxygen("# Chapter 3: GPipe"), "# Chapter 3: GPipe {#chapters_03_gpipe}")
        self.assertEqual(doxygen("## How `long`, --x?"), r"## How long, \--x? {#chapters_03_gpipe-how-long---x}")
        anchor = doxygen('- <a name="li2020"></a>S. Li', "docs/bibliography.md")
        self.assertEqual(anchor, "- \\anchor bibliography-li2020 S. Li")

    def test_pictures_are_named_without_their_folder(self):
        self.assertEqual(doxygen("![A\nstep](../../docs/figures/x.svg)"), "![A step](x.svg)")

    def test_code_stays(self):
        for code in ("`[a](b.md) --x`", "```sh\nrun --x # [a](b.md)\n# no heading\n```"):
            with self.subTest(code):
                self.assertEqual(doxygen(code), code)

    def test_flags_keep_their_dashes(self):
        self.assertEqual(doxygen("run --x a--b\n|---|"), "run \\--x a--b\n|---|")


class Formulas(unittest.TestCase):
    def text(self, tex):
        return "".join(ElementTree.fromstring(mathml(tex)).itertext())

    def test_formulas(self):
        for tex, wanted in (
            (r"\frac{p - 1}{v m + p - 1}", "p−1vm+p−1"),
            (r"w_{p-1}(t)", "wp−1(t)"),
            (r"\sum_{i=1}^{N} \nabla L_i", "∑i=1N∇Li"),
            (r"2 \lceil \log_2 p \rceil", "2⌈log2p⌉"),
            (r"\text{idle time} \ge 0.23", "idle time≥0.23"),
        ):
            with self.subTest(tex):
                self.assertEqual(self.text(tex), wanted)

    def test_structure(self):
        self.assertEqual(mathml("x^2"), "<math><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>")
        self.assertIn('<math display="block">', mathml("x", block=True))

    def test_what_is_not_known_is_an_error(self):
        for tex in (r"\mathcal{L}", r"\frac{1}", "{x", "x_"):
            with self.subTest(tex), self.assertRaisesRegex(FormulaError, "formula"):
                mathml(tex)


if __name__ == "__main__":
    unittest.main()
