"""Sphinx' configuration of the site; `make docs` builds it, without the network.

The source folder is the checkout, so that links between docs/ and README, bench/ and so on hold on
the site as they do in a checkout. Pages of public names are written when a build begins.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import generate_api_page as names  # noqa: E402

import jflow  # noqa: E402

project = "jflow"
author = "the jflow authors"
release = version = jflow.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "bench/README.md",
    "bench/*NOTES.md",
    "bench/AGAINST.md",
    "bench/placement/**",
    "docs/**",
    "notebooks/*.ipynb",
    "tests/README.md",
]
exclude_patterns = ["docs/conf.py", "docs/grafana.json"]
suppress_warnings = [
    "myst.header",  # decisions begin at the second level
    "ref.python",  # a name that several public modules have
    "toc.not_included",  # notes, which other pages link to
]

myst_enable_extensions = ["attrs_inline", "html_image"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests run the notebooks
nb_render_markdown_format = "myst"
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = "jflow"
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
html_extra_path = ["site"]
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

_OF_CLASSES = (
    "   :members:",
    "   :inherited-members: BaseException, int, str, tuple, dict, Protocol, Generic",
    "   :exclude-members: StepContext",  # `jflow.train` has it
)
"""What is shown of a class: all but what the documentation of Python describes."""

REFERENCE = ROOT / "docs" / "reference"


def write_reference(_: Sphinx) -> None:
    """Writes a page of each public module: its docstring, and those of its names."""
    shutil.rmtree(REFERENCE, ignore_errors=True)  # modules may be gone
    REFERENCE.mkdir()
    modules = [module for module in names.modules() if names.members(module)]
    listed = "\n".join(f"   {module.__name__}" for module in modules)
    pages = {"index": f"Docstrings\n==========\n\n.. toctree::\n\n{listed}\n"}
    described: dict[int, str] = {}
    for module in modules:
        title = module.__name__
        lines = [title, "=" * len(title), "", f".. automodule:: {title}", ""]
        for name, value in names.members(module).items():
            kind = "class" if isinstance(value, type) else "function" if callable(value) else "data"
            options = list(_OF_CLASSES if kind == "class" else ())
            first = described.setdefault(id(value), f"{title}.{name}")
            if first == f"{title}.{name}":
                lines += [f".. auto{kind}:: {first}", *options, ""]
            else:
                lines += [f"``{name}`` is :py:obj:`{first}`.", ""]
        pages[title] = "\n".join(lines)
    for name, text in pages.items():
        (REFERENCE / f"{name}.rst").write_text(text)


def mark_anchors(_: Sphinx, __: str, source: list[str]) -> None:
    """Makes anchors, which GitHub's pages have as HTML, targets of links."""
    source[0] = re.sub(r'<a id="([\w-]+)"></a>', r"[]{#\1}", source[0])


def escape(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    """Makes a docstring, which is written as Markdown is, reStructuredText."""
    text = re.sub(r",\n +(?=[\w, ]+:)", ", ", "\n".join(lines))  # names on two lines
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"(\*(?! )|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def end_code(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    """Ends code before a letter, as in "`Tensor`s", where reStructuredText needs a mark."""
    lines[:] = [re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Connects what is done when a build begins, and with each page."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", mark_anchors)
    app.connect("autodoc-process-docstring", escape, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", end_code, priority=600)
