#!/usr/bin/env python3
"""Shows that check_site.py finds each defect: python3 -m unittest discover -s tests/docs -p '*_test.py'"""

import pathlib
import tempfile
import unittest

from check_site import Site, markdown_findings

PAGE = "<html><head><title>Stagecoach: {title}</title>{head}</head><body>{body}</body></html>"


class CheckSite(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("html/here.svg", "<svg/>")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def page(self, body, name="page.html", title="A page", head=""):
        self.write(f"html/{name}", PAGE.format(title=title, head=head, body=body))

    def findings(self):
        return list(Site(self.root / "html").findings())

    def finds(self, part, body, **page):
        self.page(body, **page)
        found = self.findings()
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_a_whole_page_passes(self):
        self.page(
            '<a id="there"></a><a href="#there">a</a> <a href="page.html#there">b</a> <a href="https://a.b/c">c</a>'
            '<object data="here.svg"></object> <img src="here.svg" alt=""> <code>--flag [a](b.md) &lt;a name&gt;</code> vector&lt; T &gt; 2 – 3'
            '<div class="fragment">$`x`$ **bold**</div> operator[](int) char **a <math><mi>p</mi></math>'
        )
        self.assertEqual(self.findings(), [])

    def test_raw_markup(self):
        for shown, found in (
            ("see [the\ntable](tables.md#one)", "](tables.md#one)"),
            ("&lt;a name=\"x\"&gt;", '<a name="x">'),
            ("a &lt;tt&gt; b", "<tt>"),
            ("@endcode", "@endcode"),
            ("so \\(p", "\\("),
            ("so $`p", "$`"),
            ("\\frac{1}{2}", "\\frac"),
            ("a **bold** word", "**bold**"),
            ("a `code` word", "`code`"),
            ("with –explain", "–e"),
        ):
            with self.subTest(shown):
                self.finds(f"raw markup {found}", shown)

    def test_missing_images(self):
        self.finds("../figures/x.svg is missing", '<img src="../figures/x.svg" alt="a drawing">')
        self.finds("x.svg is missing", '<object data="x.svg"></object>')

    def test_what_needs_a_network(self):
        script = '<script src="https://cdn.example/MathJax.js"></script>'
        self.finds("needs a network: https://cdn.example/MathJax.js", "", head=script)
        self.page("")
        self.write("html/site.css", "@import url(//fonts.example/x.css);")
        self.assertEqual(self.findings(), ["site.css: needs a network: //fonts.example/x.css"])

    def test_dead_links(self):
        self.finds("there is no such page", '<a href="gone.html">a</a>')
        self.finds("there is no such place", '<a href="#gone">a</a>')
        self.finds("there is no such place", '<a href="page.html#gone">a</a>')

    def test_links_between_folders(self):
        self.page('<a href="../page.html#there">a</a> <a href="gone.html">b</a>', name="below/other.html")
        self.page('<a id="there"></a><a href="below/other.html">a</a>')
        self.assertEqual(self.findings(), ["below/other.html: dead link gone.html: there is no such page"])

    def test_pictures(self):
        drawing = '<svg role="img" id="x" aria-label="What is seen"><text font-size="11">a</text></svg>'
        self.page(f'<figure class="concept">{drawing}<figcaption>Figure 1</figcaption></figure>')
        self.assertEqual(self.findings(), [])
        self.finds("here.svg has no text", '<img src="here.svg">')
        self.finds("x has no text", drawing.replace("What is seen", ""))
        self.finds("x has no caption", f'<figure class="concept">{drawing}</figure>')
        self.finds("letters of 9 in a drawing", drawing.replace('"11"', '"9"'))
        self.finds("letters of 9px in a drawing", "<style>text { font: bold 9px sans-serif; }</style>")

    def project(self, front):
        self.write("README.md", "# Stagecoach\n")
        self.write("chapters/01/README.md", "# Chapter 1\n")
        self.page(front, name="index.html")
        return list(markdown_findings(Site(self.root / "html"), self.root))

    def test_pages_that_are_not_there(self):
        link = '<a href="chapters/01/index.html">Chapter 1</a>'
        self.assertEqual(self.project(link), ["chapters/01/README.md: has no page"])
        self.page("", name="chapters/01/index.html")
        self.assertEqual(self.project(link), [])
        self.assertEqual(self.project(""), ["chapters/01/README.md: the tree of pages does not lead there"])


if __name__ == "__main__":
    unittest.main()
