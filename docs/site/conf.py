"""The settings of Sphinx for the site. scripts/build.sh docs runs it; the pages are the Markdown files of the project, which
are written for a forge, and forge.py turns what a forge shows otherwise."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from forge import PLAYGROUND  # noqa: E402

project = "Stagecoach"
html_title = "Stagecoach"
copyright = ""
extensions = ["myst_parser", "sphinx_copybutton", "forge"]

root_doc = "index"  # README.md
include_patterns = ["README.md", "chapters/0*/*.md", "chapters/0*/lab/*.md", "docs/*.md", "docs/*/*.md"]

myst_enable_extensions = ["attrs_inline", "html_image"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # quoted code leaves lines out
smartquotes = False  # --flags are no dashes
highlight_language = "text"

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = [str(PLAYGROUND)] if PLAYGROUND.exists() else []  # scripts/build.sh docs builds it where emscripten is
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html", "sidebar/navigation.html",
        "sidebar/api.html", "sidebar/scroll-end.html",
    ]
}  # fmt: skip
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # reading pages for it is not allowed where there is no server
html_use_index = False
html_domain_indices = False
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
