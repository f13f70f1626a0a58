"""Sphinx builds the site from the repository itself, so that links between pages work on GitHub and on the site alike.

``make docs`` builds it into build/docs, and fails on a broken link.
"""

from importlib.metadata import version as installed

project = "omdml"
author = "the omdml developers"
version = release = installed("omdml")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
include_patterns = [
    "docs/**.md",
    "deploy/*.md",
    "deploy/*/README.md",
    "omdml/*.md",
    "streams/README.md",
    "workers/README.md",
    "benchmarks/papers/README.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "DECISIONS.md",
]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
# Headings down to this level are targets of links, named as GitHub names them.
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "toc.not_included"]

html_theme = "furo"
html_title = "omdml"
html_static_path: list[str] = []
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
