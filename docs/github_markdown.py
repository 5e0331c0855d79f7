#!/usr/bin/env python3
"""From Markdown as GitHub shows it to Markdown as Doxygen reads it. The pages are written for GitHub.

    docs/github_markdown.py PAGE.md        prints the page; Doxygen runs it in the project's root

- Links to pages, to places on them and to source files become references, which Doxygen checks. For that every title
  and heading gets a name.
- Pictures are named as Doxygen looks for them: without their folder.
- Formulas become MathML.
Blocks of code and `code` in a line stay as they are.
"""

import posixpath
import re
import sys

from mathml import FormulaError, mathml

FRONT_PAGE = "docs/mainpage.md"
# The pages that they link to are below them in the tree of pages.
PARENTS = (FRONT_PAGE, "docs/measurements/README.md")
SOURCES = (".h", ".cuh", ".cpp", ".cu")  # those that Doxygen reads: docs/CMakeLists.txt

# What comes first wins: no link is looked for within code, no heading within a block.
MARKUP = re.compile(
    r"""
      ^[ ]*```math\n (?P<block_formula> .*?) ^[ ]*```$
    | ^[ ]*```(?P<block_code> .*? ^[ ]*```$)
    | \$` (?P<formula> [^`]*) `\$
    | (?P<code> `[^`]*`)
    | <a[ ]name="(?P<anchor> [^"]*)"></a>
    | ^(?P<level> \#+)[ ] (?P<heading> [^\n]*)$
    | (?P<picture> !?) \[(?P<text> [^][]*)\] \((?P<target> [^()\s]*)\)
    | (?P<option> (?<![-\w])--(?=\w))
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def page_name(path):
    """chapters/03_gpipe/README.md: chapters_03_gpipe, and docs/clusters.md: clusters."""
    parts = re.sub(r"(/README)?\.md$", "", path).split("/")
    return "_".join(parts[1:] if parts[0] == "docs" else parts)


def place_name(page, place):
    return f"{page_name(page)}-{place}"


def heading_place(heading):
    """The name that GitHub gives to a heading: '## Two clocks' is #two-clocks."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Page:
    def __init__(self, path):
        self.path = path
        self.children = set()

    def doxygen(self, markdown):
        return MARKUP.sub(self.replacement, markdown)

    def replacement(self, match):
        found = match.groupdict()
        if found["block_formula"] is not None:
            return f"\\htmlonly[block]\n{mathml(found['block_formula'], block=True)}\n\\endhtmlonly"
        if found["block_code"]:
            return "```" + re.sub(r"^cpp\n", "text\n", found["block_code"])  # else names become links to namesakes
        if found["formula"] is not None:
            return f"\\htmlonly{mathml(found['formula'])}\\endhtmlonly"
        if found["anchor"]:
            return f"\\anchor {place_name(self.path, found['anchor'])} "
        if found["heading"]:
            return self.heading(found["level"], found["heading"])
        if found["option"]:
            return r"\--"  # else a dash
        if found["picture"]:
            return f"![{plain(found['text'])}]({posixpath.basename(found['target'])})"
        if found["target"]:
            return self.link(plain(found["text"]), found["target"])
        return match.group()

    def heading(self, level, heading):
        name = page_name(self.path) if level == "#" else place_name(self.path, heading_place(heading))
        title = "README" if name == "README" else plain(heading).replace("--", r"\--")  # not a second "Stagecoach"
        return f"{level} {title}" if name == page_name(FRONT_PAGE) else f"{level} {title} {{#{name}}}"

    def link(self, text, target):
        if ":" in target:
            return f"[{text}]({target})"
        path, _, place = target.partition("#")
        if path.endswith("/"):
            path += "README.md"
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), path)) if path else self.path
        if path.endswith(".md"):
            if self.path in PARENTS and not place and path not in self.children:
                self.children.add(path)
                return f'@subpage {page_name(path)} "{text}"'
            return f"[{text}](@ref {place_name(path, place) if place else page_name(path)})"
        if path.endswith(SOURCES):
            return f"[{text}](@ref {path})"
        return text


def plain(text):
    """On one line, and without marks of code: Doxygen 1.9 shows those in links and headings."""
    return " ".join(text.replace("`", "").split())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = posixpath.relpath(sys.argv[1])
    try:
        with open(path, encoding="utf-8") as file:
            sys.stdout.reconfigure(encoding="utf-8")
            sys.stdout.write(Page(path).doxygen(file.read()))
    except (OSError, FormulaError) as error:
        sys.exit(f"{path}: {error}")


if __name__ == "__main__":
    main()
