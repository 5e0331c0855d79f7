"""From Markdown as a forge shows it to the pages of the site.

- README.md is the index of its folder, and the tree of pages follows from the folders.
- Formulas, $`…`$ and blocks of math, become MathML, which browsers draw without a network.
- An image with a line in italics below it that begins "Figure" becomes a figure with a caption. SVGs stand in the page, so
  that they follow its light or dark mode and keep their tooltips.
- A link to a source file opens a page that shows it; one to the playground opens the playground, where it was built.
"""

import functools
import os
import pathlib
import re
from html import escape
from xml.etree import ElementTree

from docutils import nodes
from drawings import inline_svg
from mathml import mathml
from sphinx import addnodes
from sphinx.project import Project
from sphinx.transforms import SphinxTransform

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAYGROUND = ROOT / "build/playground/playground.html"  # conf.py adds it to the site
LANGUAGES = {
    ".h": "cpp", ".cpp": "cpp", ".cuh": "cuda", ".cu": "cuda", ".py": "python", ".sh": "bash", ".cmake": "cmake",
    ".patch": "diff", ".ipynb": "json",
}  # fmt: skip
CODE = r"^ *```.*?^ *```$|`[^`]+`"  # stays as it is


# -- Pages and their tree


def page_name(path):
    """README.md is index, chapters/03_gpipe/README.md is chapters/03_gpipe/index."""
    return re.sub(r"(^|/)README$", r"\1index", path)


def path_to_page(project, filename, of_sphinx=Project.path2doc):
    name = of_sphinx(project, filename)
    return name and page_name(name)


def toctree(lines, caption=""):
    title = f":caption: {caption}\n" if caption else ""
    return f"\n\n```{{toctree}}\n:hidden:\n{title}\n" + "\n".join(lines) + "\n```\n"


def names(pattern, but=()):
    """The pages below the root that match, in the order of their names."""
    found = (page_name(str(path.relative_to(ROOT).with_suffix(""))) for path in sorted(ROOT.glob(pattern)))
    return ["/" + name for name in found if name not in but]


def tree_below(name):
    """The pages that come next to a page: what a forge shows as folders."""
    folder = name.removesuffix("index")
    if name == "index":
        return (
            toctree(names("chapters/0*/README.md"), "Book")
            + toctree(["/docs/index", *names("docs/*.md", ["docs/index"])], "More to read")
            + toctree(names("docs/reference/*.md"), "Reference")
            + toctree(["/docs/measurements/index", *names("docs/measurements/*.md", ["docs/measurements/index"]),
                       "/docs/published/index"], "Measurements")
        )  # fmt: skip
    if re.fullmatch(r"chapters/0[^/]*/index", name):
        below = (("Exercises", "exercises"), ("Lab", "lab/index"))
    elif name.endswith("lab/index"):
        below = (("Hints", "hints"),)
    else:
        return ""
    lines = [f"{title} </{folder}{page}>" for title, page in below
             if (ROOT / folder / re.sub("index$", "README", page)).with_suffix(".md").exists()]  # fmt: skip
    return toctree(lines) if lines else ""


# -- The text


def to_sphinx(_app, name, content):
    markup = re.compile(rf'{CODE}|\$`(?P<formula>[^`]*)`\$|<a name="(?P<anchor>[^"]*)"></a>', re.MULTILINE | re.DOTALL)

    def replacement(match):
        if match["formula"]:
            return f"{{math}}`{match['formula']}`"
        return f"[\u200b]{{#{match['anchor']}}}" if match["anchor"] else match.group()

    content[0] = links_to_playground(markup.sub(replacement, content[0]), name) + tree_below(name)


def links_to_playground(text, name):
    """[text](../playground/page.html#state) opens that state, where there is a playground."""
    if not PLAYGROUND.exists():
        return text

    def opened(match):
        address = "../" * name.count("/") + PLAYGROUND.name + match["state"]
        return f'<a class="reference playground" title="in the playground" href="{escape(address)}">{match["text"]}</a>'

    return re.sub(r"\[(?P<text>[^]]+)\]\([./\w]*playground/page\.html(?P<state>#[^)]*)\)", opened, text)


def register_anchors(app, doctree):
    """Places with a name of their own can be linked, as headings can."""
    slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for node in doctree.findall(nodes.inline):
        for name in node["ids"]:
            slugs.setdefault(name, (node.line, name, name))


def inline_math(writer, node):
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def block_math(writer, node):
    writer.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


# -- Figures


class Figures(SphinxTransform):
    default_priority = 200

    def apply(self):
        folder = pathlib.Path(self.env.doc2path(self.env.docname)).parent
        for image in list(self.document.findall(nodes.image)):
            paragraph = image.parent
            path = folder / image["uri"]
            is_first = isinstance(paragraph, nodes.paragraph) and paragraph.index(image) == 0
            if not (is_first and path.suffix == ".svg" and path.exists()) or "width" in image:  # a width: a thumbnail
                continue
            self.env.note_dependency(os.path.relpath(path, ROOT))
            kind = "concept" if path.parent.name == "concept" else "generated"
            figure = nodes.figure("", classes=[kind])
            figure += nodes.raw("", f'<div class="drawing">{inline_svg(path, image["alt"])}</div>', format="html")
            rest = paragraph.children[1:]
            if len(rest) > 1 and isinstance(rest[1], nodes.emphasis) and rest[1].astext().startswith("Figure"):
                figure += nodes.caption("", "", *rest[1].children)
                rest = rest[2:]
            paragraph.replace_self([figure, nodes.paragraph("", "", *rest)] if rest else [figure])


# -- Sources


class SourceLinks(SphinxTransform):
    default_priority = 201

    def apply(self):
        folder = pathlib.Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(addnodes.download_reference)):
            path = os.path.relpath(os.path.normpath(folder / link["reftarget"]), ROOT)
            self.env.forge_sources.setdefault(self.env.docname, set()).add(path)
            address = self.app.builder.get_relative_uri(self.env.docname, "source/" + path)
            link.replace_self(nodes.reference("", "", *link.children, refuri=address, internal=True))


def forget_sources(app, env, name):
    env.forge_sources = getattr(env, "forge_sources", {})
    env.forge_sources.pop(name, None)


def merge_sources(_app, env, _names, other):
    env.forge_sources.update(other.forge_sources)


def source_pages(app):
    """A page for each source file that a page links."""
    tree = functools.cache(lambda folder, **options: app.builder._get_local_toctree(folder + "/file", **options))  # slow
    tags = pathlib.Path(app.outdir) / "api/stagecoach.tag"
    files = ElementTree.parse(tags).iterfind("compound[@kind='file']") if tags.exists() else ()
    documented = {file.findtext("path") + file.findtext("name"): file.findtext("filename") for file in files}
    for path in sorted(set().union(*app.env.forge_sources.values())):
        text = (ROOT / path).read_text(encoding="utf-8")
        language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
        code = app.builder.highlighter.highlight_block(text, language, force=True)
        name = "source/" + path
        api = ""
        if path in documented:
            page = documented[path].removesuffix(".html") + ".html"
            api = f'<p><a href="{"../" * name.count("/")}api/{page}">What it declares</a>, in the API</p>'
        body = f'<section><h1>{escape(path)}</h1>{api}<div class="highlight-{language}">{code}</div></section>'
        context = {"title": path, "body": body, "toctree": functools.partial(tree, os.path.dirname(name))}
        yield name, context, "page.html"


def setup(app):
    Project.path2doc = path_to_page
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_transform(Figures)
    app.add_transform(SourceLinks)
    app.connect("source-read", to_sphinx)
    app.connect("doctree-read", register_anchors)
    app.connect("env-purge-doc", forget_sources)
    app.connect("env-merge-info", merge_sources)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
