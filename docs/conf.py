"""Settings of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

import invariant_bandits

sys.path.insert(0, str(Path(__file__).parent))  # site_directives lies beside this file

project = "invariant-bandits"
author = "the authors of invariant-bandits"
version = release = invariant_bandits.__version__
html_title = "invariant-bandits"
html_show_copyright = html_show_sphinx = False

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "site_directives",
]
exclude_patterns = ["README.md"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "auto"  # notebooks are stored without outputs
nb_execution_timeout = 300
nb_execution_raise_on_error = True

default_role = "code"  # docstrings name things between single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types, shapes and units
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = (
    False  # types are words, such as "(n, p) array": nothing to link to
)
napoleon_custom_sections = [("Attributes", "params_style")]
nitpick_ignore_regex = [
    ("py:.*", r"(?!invariant_bandits(_service|_reproduction)?\.).*"),  # other libraries
    (
        "py:class",
        r"invariant_bandits\.policies\.memory\.\w+State",
    ),  # what a memory keeps is its own
]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": True,
    "dark_css_variables": {"color-background-primary": "#0d1117"},  # as in the pictures
}
