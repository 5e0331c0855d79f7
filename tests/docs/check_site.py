#!/usr/bin/env python3
"""Looks through the built documentation for what Sphinx and Doxygen do not notice.

    tests/docs/check_site.py build/docs/html       in the project's root

- markup that is shown in place of what it means: tags, links, formulas, a flag whose -- became a dash
- images, styles and scripts that are missing or that need a network; links whose page or place is not there
- pictures without a text for those who do not see them, drawings with letters of less than 11 pixels, and figures of ideas
  without a caption
- Markdown pages that the site lacks or that its tree of pages does not lead to
Prints a line for each, and exits with 1 if there is any. Needs nothing but Python.
"""

import collections
import functools
import pathlib
import posixpath
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

RAW = re.compile(
    r"""
      </?(?:a|b|br|code|em|i|img|li|p|pre|sub|sup|table|td|th|tr|tt|ul)\b[^<>]*>
    | \]\([^)\s]*[./\#][^)\s]*\)                  # [text](page.md)
    | [@\\](?:anchor|code|endcode|form|htmlonly|image|ref|section|subpage)\b | \{\#[\w-]+\} | \{math\}
    | \\f?[][()$] | \\_form | \\(?:frac|sum|text|alpha|beta|le|ge)\b | \$` | `[^`]+` | ```
    | \*\*\w[^*]*\w\*\*(?!\w)
    | (?<!\S)–[a-z]                               # –flag
    """,
    re.VERBOSE,
)
# Links that Doxygen makes to nowhere: for classes within a class that are private, and in its alphabetical lists.
OWN_PLACES = ("nested-classes", "index_")
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
# What a page needs to be shown, and where it names it.
NEEDED = {"script": "src", "img": "src", "object": "data", "iframe": "src", "link": "href"}
SMALLEST_LETTERS = 11


class HtmlPage(HTMLParser):
    """What a built page shows and names."""

    def __init__(self, html):
        super().__init__()
        self.raw = []  # markup that a reader sees
        self.places = set()
        self.needed = []  # what it is made of
        self.links = []
        self.unclear = []  # pictures that lack something
        self.open = []  # (tag, whether its text is code)
        self.figure = None  # of an idea: its name, until there is a caption
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        classes = set((values.get("class") or "").split())
        self.places.update(filter(None, (values.get("id"), values.get("name"))))
        if values.get(NEEDED.get(tag)):
            self.needed.append(values[NEEDED[tag]])
        if tag in ("a", "area") and values.get("href"):
            self.links.append(values["href"])
        if tag == "figure" and "concept" in classes:
            self.figure = "a figure"
        elif tag == "figcaption":
            self.figure = None
        elif tag == "img" and values.get("alt") is None:
            self.unclear.append(f"{values.get('src')} has no text for those who do not see it")
        elif values.get("role") == "img":
            self.figure = self.figure and values.get("id")
            if not values.get("aria-label"):
                self.unclear.append(f"{values.get('id')} has no text for those who do not see it")
        if "svg" in [tag for tag, _ in self.open]:
            self.look_at_letters(values.get("font-size") or "")
        if tag not in VOID:
            is_code = tag in ("script", "style", "pre", "code", "math", "svg") or {"fragment", "tt"} & classes
            self.open.append((tag, bool(is_code) or (bool(self.open) and self.open[-1][1])))

    def handle_endtag(self, tag):
        if any(tag == name for name, _ in self.open):
            while self.open.pop()[0] != tag:
                pass
        if tag == "figure" and self.figure:
            self.unclear.append(f"{self.figure} has no caption")

    def handle_data(self, text):
        if self.open and self.open[-1][0] == "style":
            for size in re.findall(r"font(?:-size)?:[^;}]*?([\d.]+px)", text):
                self.look_at_letters(size)
        elif not (self.open and self.open[-1][1]):
            self.raw.extend(match.group() for match in RAW.finditer(text))

    def look_at_letters(self, size):
        if size and float(size.removesuffix("px")) < SMALLEST_LETTERS:
            self.unclear.append(f"letters of {size} in a drawing")


class Site:
    def __init__(self, folder):
        self.folder = folder
        names = (str(path.relative_to(folder)) for path in sorted(folder.rglob("*.html")))
        self.pages = {name: HtmlPage((folder / name).read_text(encoding="utf-8")) for name in names}
        self.is_file = functools.cache(lambda name: (folder / name).is_file())

    def findings(self):
        for name, page in self.pages.items():
            for raw, count in collections.Counter(page.raw).items():
                yield f"{name}: raw markup {raw}" + (f", {count} times" if count > 1 else "")
            for what in dict.fromkeys(page.unclear):
                yield f"{name}: {what}"
            for file in dict.fromkeys(page.needed):
                yield from self.needed_findings(name, file)
            for href in dict.fromkeys(page.links):
                yield from self.link_findings(name, href)
        for style in sorted(self.folder.rglob("*.css")):
            for file in re.findall(r"""(?:url\(\s*["']?|@import\s+["'])([^"')]+)""", style.read_text(encoding="utf-8")):
                if urlsplit(file).netloc:  # Doxygen's own styles name files that no page needs
                    yield f"{style.relative_to(self.folder)}: needs a network: {file}"

    def target(self, name, path):
        return posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(path))) if path else name

    def needed_findings(self, name, file):
        address = urlsplit(file)
        if address.scheme in ("data", "javascript"):
            return
        if address.netloc:
            yield f"{name}: needs a network: {file}"
        elif not self.is_file(self.target(name, address.path)):
            yield f"{name}: {file} is missing"

    def link_findings(self, name, href):
        address = urlsplit(href)
        if address.scheme or address.netloc or address.fragment.startswith(OWN_PLACES):
            return
        target = self.target(name, address.path)
        if not self.is_file(target):
            yield f"{name}: dead link {href}: there is no such page"
        elif address.fragment and target in self.pages and "=" not in address.fragment:  # of the playground: its state
            if unquote(address.fragment) not in self.pages[target].places:
                yield f"{name}: dead link {href}: there is no such place on the page"


def markdown_findings(site, root):
    """Pages that the site lacks, or that the front page, which has the tree of all pages, does not lead to."""
    front = site.pages.get("index.html")
    if not front:
        yield "index.html is missing"
        return
    for path in sorted([root / "README.md", *(root / "docs").rglob("*.md"), *(root / "chapters").rglob("*.md")]):
        name = re.sub(r"(^|/)README$", r"\1index", str(path.relative_to(root).with_suffix(""))) + ".html"
        if name not in site.pages:
            yield f"{path.relative_to(root)}: has no page"
        elif name != "index.html" and name not in front.links:
            yield f"{path.relative_to(root)}: the tree of pages does not lead there"


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    site = Site(pathlib.Path(sys.argv[1]))
    findings = [*site.findings(), *markdown_findings(site, pathlib.Path.cwd())]
    for finding in findings:
        print(f"documentation: {finding}", file=sys.stderr)
    links = sum(len(page.links) for page in site.pages.values())
    print(f"documentation: {len(site.pages)} pages with {links} links, {len(findings)} findings")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
