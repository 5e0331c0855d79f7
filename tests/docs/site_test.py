#!/usr/bin/env python3
"""How drawings and formulas come into the site: python3 -m unittest discover -s tests/docs -p '*_test.py'"""

import pathlib
import sys
import tempfile
import unittest
from xml.etree import ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/site"))
from drawings import inline_svg, scoped  # noqa: E402
from mathml import FormulaError, mathml  # noqa: E402

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 72 30" role="img" aria-labelledby="title desc">
<title id="title">A title</title><desc id="desc">More</desc>
<style>
  text { fill: black; } .a, .b { animation: go 1s; }
  @keyframes go { 0% { opacity: 0; } }
  @media (prefers-color-scheme: dark) { text { fill: white; } }
</style>
<marker id="head"/><path marker-end="url(#head)"/><text font-size="9">a<title>tooltip</title></text>
<g id="all"><rect/></g><use href="#all" clip-path="url(#head)"/></svg>
"""


class Drawings(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.svg"
            path.write_text(SVG, encoding="utf-8")
            self.shown = inline_svg(path, "two < three")

    def test_styles_are_for_the_drawing_alone(self):
        self.assertEqual(scoped("text { a: b; } .x, .y { c: d }", "#f"), "#f text { a: b; }\n#f .x, #f .y { c: d }\n")
        self.assertIn("#figure-x .a, #figure-x .b { animation: figure-x-go 1s; }", self.shown)
        self.assertIn("@keyframes figure-x-go", self.shown)

    def test_dark_is_what_the_page_says(self):
        self.assertIn(':where(body[data-theme="dark"]) #figure-x text { fill: white; }', self.shown)
        self.assertIn(':where(body:not([data-theme="light"])) #figure-x text { fill: white; }', self.shown)

    def test_names_are_its_own(self):
        self.assertIn('<marker id="figure-x-head" /><path marker-end="url(#figure-x-head)" />', self.shown)

    def test_what_is_used_again_is_there_again(self):
        self.assertIn('<g id="figure-x-all"><rect /></g><g clip-path="url(#figure-x-head)"><g><rect /></g></g>', self.shown)

    def test_size_text_and_tooltips(self):
        root = ElementTree.fromstring(self.shown)
        self.assertEqual((root.get("width"), root.get("height")), ("72", "30"))
        self.assertEqual(root.get("aria-label"), "two < three")
        self.assertNotIn("A title", self.shown)
        self.assertIn('<text font-size="11">a<title>tooltip</title>', self.shown)


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
            (r"p \leftarrow p - \eta \hat m / \sqrt{\hat v}", "p←p−ηm\u0302/v\u0302"),
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
