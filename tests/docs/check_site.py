#!/usr/bin/env python3
"""Looks through the built documentation for what Doxygen does not notice.

    tests/docs/check_site.py build/docs/html       in the project's root

- markup that is shown in place of what it means: tags, links, formulas, a flag whose -- became a dash
- images, styles and scripts that are missing or that need a network; links whose page or place is not there
- links of the Markdown pages that are plain text, pages that the front page does not lead to
- files that belong to no interface
Prints a line for each, and exits with 1 if there is any. Needs nothing but Python.
"""

import collections
import pathlib
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs"))
from github_markdown import FRONT_PAGE, MARKUP, SOURCES, plain  # noqa: E402

RAW = re.compile(
    r"""
      </?(?:a|b|br|code|em|i|img|li|p|pre|sub|sup|table|td|th|tr|tt|ul)\b[^<>]*>
    | \]\([^)\s]*[./\#][^)\s]*\)                  # [text](page.md)
    | [@\\](?:anchor|code|endcode|form|htmlonly|image|ref|section|subpage)\b | \{\#[\w-]+\}
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


class HtmlPage(HTMLParser):
    """What a built page shows and names."""

    def __init__(self, html):
        super().__init__()
        self.title = ""
        self.raw = []  # markup that a reader sees
        self.places = set()
        self.needed = []  # what it is made of
        self.links = []  # (href, text), in the order of the page
        self.open = []  # (tag, whether its text is code)
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.places.update(filter(None, (values.get("id"), values.get("name"))))
        if values.get(NEEDED.get(tag)):
            self.needed.append(values[NEEDED[tag]])
        if tag in ("a", "area") and values.get("href"):
            self.links.append((values["href"], ""))
        if tag not in VOID:
            is_code = tag in ("script", "style", "pre", "code", "math") or {"fragment", "tt"} & set(
                (values.get("class") or "").split()
            )
            self.open.append((tag, bool(is_code) or (bool(self.open) and self.open[-1][1])))

    def handle_endtag(self, tag):
        if any(tag == name for name, _ in self.open):
            while self.open.pop()[0] != tag:
                pass

    def handle_data(self, text):
        tags = [tag for tag, _ in self.open]
        if "title" in tags:
            self.title += text
        if "a" in tags and self.links:
            href, before = self.links[-1]
            self.links[-1] = (href, before + text)
        if not (self.open and self.open[-1][1]):
            self.raw.extend(match.group() for match in RAW.finditer(text))


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.pages = {path.name: HtmlPage(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.html"))}

    def findings(self):
        for name, page in self.pages.items():
            for raw, count in collections.Counter(page.raw).items():
                yield f"{name}: raw markup {raw}" + (f", {count} times" if count > 1 else "")
            for file in dict.fromkeys(page.needed):
                yield from self.needed_findings(name, file)
            for href in dict.fromkeys(href for href, _ in page.links):
                yield from self.link_findings(name, href)
        for style in sorted(self.folder.glob("*.css")):
            for file in re.findall(r"""(?:url\(\s*["']?|@import\s+["'])([^"')]+)""", style.read_text(encoding="utf-8")):
                if urlsplit(file).netloc:  # Doxygen's own styles name files that no page needs
                    yield f"{style.name}: needs a network: {file}"

    def needed_findings(self, name, file):
        address = urlsplit(file)
        if address.scheme in ("data", "javascript"):
            return
        if address.netloc:
            yield f"{name}: needs a network: {file}"
        elif not (self.folder / unquote(address.path)).is_file():
            yield f"{name}: {file} is missing"

    def link_findings(self, name, href):
        address = urlsplit(href)
        if address.scheme or address.netloc or address.fragment.startswith(OWN_PLACES):
            return
        target = unquote(address.path) or name
        if not (self.folder / target).is_file():
            yield f"{name}: dead link {href}: there is no such page"
        elif address.fragment and target in self.pages:
            if unquote(address.fragment) not in self.pages[target].places:
                yield f"{name}: dead link {href}: there is no such place on the page"

    def named(self, title):
        """The page with that title, or None."""
        return next((page for page in self.pages.values() if page.title.strip() == f"Stagecoach: {title}"), None)


def markdown_links(path):
    """(text, target) of the links to other files of the project that the site has."""
    for match in MARKUP.finditer(path.read_text(encoding="utf-8")):
        target = (match["target"] or "").partition("#")[0]
        if not match["picture"] and ":" not in target and target.endswith((".md", *SOURCES)):
            yield plain(match["text"]), target


def markdown_title(path, root):
    if path == root / "README.md":
        return "README"
    return plain(path.read_text(encoding="utf-8").splitlines()[0].lstrip("# "))


def markdown_findings(site, root):
    """Links of the Markdown pages that are none in the site, and pages that nobody finds."""
    pages = sorted([root / "README.md", *(root / "docs").rglob("*.md"), *(root / "chapters").rglob("*.md")])
    built = {path: site.named(markdown_title(path, root)) for path in pages}
    built[root / FRONT_PAGE] = front = site.pages.get("index.html")
    if not front:
        yield "index.html is missing"
        return
    first = {href for href, _ in front.links}
    second = first.union(*({href for href, _ in site.pages[href].links} for href in first & site.pages.keys()))
    names = {id(page): name for name, page in site.pages.items()}
    for path, page in built.items():
        short = path.relative_to(root)
        if not page:
            yield f"{short}: has no page"
            continue
        shown = {" ".join(text.split()) for _, text in page.links}
        for text, target in markdown_links(path):
            if text not in shown:
                yield f"{short}: {text} ({target}) is no link"
        if page is not front and names[id(page)] not in (first if short.match("chapters/*/README.md") else second):
            yield f"{short}: the front page does not lead there; add it to docs/mainpage.md or a page listed there"


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
