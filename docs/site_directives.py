"""Directives of the site: public names, the command's help, the service's calls; pictures in two themes."""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

import invariant_bandits
import invariant_bandits_service
from invariant_bandits_reproduction import policies as related
from invariant_bandits_service.client import ClientMethod

PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*<img alt="(?P<alt>[^"]*)"'
    r' src="(?P<light>[^"]+)">\s*</picture>'
)
"""The form in which every page writes a picture in two themes; repository hosts show it as well."""
STATE_MEMBERS = "arrays, settings, state_schema, from_state, to_state, options, shown, takes_memory, expect"
"""How objects are stored: not for callers."""
NOT_SHOWN = {
    "AutoISD": "update_with_offset, remaining_rounds",
    "Discount": "array_specs",
    "DriftPrior": "where_logs_ended, drift_bounds, level_unit, common_drift, unlogged, usual_precision, arms,"
    " layout, mean_precision, without_arm",
    "Episode": "offered, rewards",
    "FeatureMap": "standardise, standardise_moments, cross, cross_rows, own_contexts, cells, cell_of,"
    " sample_size, samples_every_reward, arm_moments, with_missing_indicators, learned, without, shifted,"
    " with_labels, missing_shares, silent_context, has_levels",
    "Feedback": "shifted, mapped, parts, per_row, per_round, starts, logged_rows, of_logged, sums_per_round",
    "InvariantSubspaceDecomposition": "names, coefficients_, coefficient_covariances_, p_values_,"
    " feature_stability_",
    "LabelledArms": "width",
    "Log": "resolved, first_rows, sample, times_are_dates, survey, with_source",
    "Past": "needed_horizon",
    "PaperWorld": "varying_blocks, moving_coordinates, draw_noise, covariance_root",
    "Schema": "one_row_per_action, has_offered, labelled, row_label, resolved, require_action, used_columns,"
    " rows",
    "SimulationResult": "may_replace",
    "SlidingWindow": "array_specs",
    "Split": "tested",
    "WindowedMoments": "merge_windows, regrouped, transformed, about_zero, padded, rescaled, to_bytes,"
    " from_bytes",
}
"""Members of public classes that the reference leaves out: other packages of this library call them, users do
not. Properties that a class already lists under Attributes are left out as well: no text stands twice.
"""
ONLY = '```{{image}} {path}\n:alt: "{alt}"\n:class: only-{theme}\n```\n'


PACKAGES = (
    invariant_bandits,
    invariant_bandits.evaluation,
    invariant_bandits.simulation,
    invariant_bandits_service,
    related,
)
"""Packages whose `__all__` lists public names."""


def public_names(rooms: list[str]) -> list[tuple[str, Any]]:
    """Return the public names, with their packages, and objects that modules of these rooms define.

    A room is a part of the library, such as `policies`, or a module of another package with its whole name.
    """
    wanted = tuple(
        room if room.startswith("invariant_bandits_") else f"invariant_bandits.{room}"
        for room in rooms
    )
    found = []
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.ismodule(value):
                continue  # one of PACKAGES
            if f"{value.__module__}.".startswith(tuple(f"{room}." for room in wanted)):
                found.append((f"{package.__name__}.{name}", value))
    return found


class RstDirective(Directive):
    """A directive that writes reStructuredText and has Sphinx read it."""

    has_content = False
    optional_arguments = 100
    final_argument_whitespace = True

    def lines(self) -> list[str]:
        """Return the text."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return what the text becomes."""
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(
            StringList(self.lines(), self.name),
            self.content_offset,
            node,
            match_titles=1,
        )
        return node.children


class PublicNames(RstDirective):
    """The reference of every public name that modules of the given rooms define."""

    def lines(self) -> list[str]:
        """Return an autodoc directive per name, classes with their members."""
        lines = []
        for path, value in public_names(" ".join(self.arguments).split()):
            name = value.__name__
            kind = "function"
            if isinstance(value, type):
                kind = "exception" if issubclass(value, BaseException) else "class"
            lines += [f".. auto{kind}:: {path}"]
            if kind == "class":
                hidden = ", ".join(filter(None, [STATE_MEMBERS, NOT_SHOWN.get(name)]))
                lines += ["   :members:", f"   :exclude-members: {hidden}"]
            if kind == "class" and "policies" not in " ".join(
                self.arguments
            ):  # what policies share is in one place
                lines += ["   :inherited-members: tuple"]
            lines += [""]
        return lines


class CommandHelp(RstDirective):
    """The help of every command, as a terminal shows it."""

    def lines(self) -> list[str]:
        """Return a section per command."""
        from typer import Context
        from typer.main import get_command

        from invariant_bandits.cli import NAME
        from invariant_bandits.cli.app import app
        from invariant_bandits.cli.houses import subcommands

        def shown(command: Any, parent: Any, name: str) -> list[str]:
            context = Context(
                command,
                info_name=name,
                parent=parent,
                max_content_width=100,
                terminal_width=100,
            )
            title = context.command_path
            text = command.get_help(context).splitlines()
            lines = [
                title,
                "-" * len(title),
                "",
                ".. code-block:: text",
                "",
                *(f"   {line}" for line in text),
                "",
            ]
            for inner, subcommand in subcommands(command, context):
                lines += shown(subcommand, context, inner)
            return lines

        return shown(get_command(app), None, NAME)


class ServiceCalls(RstDirective):
    """The table of the service's own calls: method, path, role, what it does."""

    def lines(self) -> list[str]:
        """Return a list table over the registered operations."""
        from invariant_bandits_service import serve  # noqa: F401  (it imports the modules that register them)
        from invariant_bandits_service.operations import OPERATIONS

        prefix = "".join(self.arguments)
        lines = [
            ".. list-table::",
            "   :header-rows: 1",
            "",
            "   * - call",
            "     - role",
            "     - what it does",
        ]
        for operation in OPERATIONS:
            path = operation.prefix + operation.path
            if not path.startswith(prefix):
                continue
            words = (
                (operation.handler.__doc__ or "")
                .strip()
                .split("\n\n")[0]
                .replace("\n", " ")
            )
            role = "anyone" if operation.role is None else operation.role
            lines += [
                f"   * - ``{operation.method} {path}``",
                f"     - {role}",
                f"     - {words}",
            ]
        return [*lines, ""]


def show_pictures(app: Sphinx, document: str, source: list[str]) -> None:
    """Rewrite pictures of two themes so that they follow the switch of the page, not only the screen."""

    def both(match: re.Match[str]) -> str:
        alt = match["alt"].replace('"', "'")
        return "".join(
            ONLY.format(path=match[theme], alt=alt, theme=theme)
            for theme in ("light", "dark")
        )

    source[0] = PICTURE.sub(both, source[0])


def mark_examples(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Put a heading before the first example of a docstring, which would pass for a parameter otherwise."""
    start = next(
        (place for place, line in enumerate(lines) if line.startswith(">>> ")), None
    )
    if start is not None and any(
        re.fullmatch(r"-{3,}", line.strip()) for line in lines[:start]
    ):
        lines[start:start] = ["Examples", "--------"]


def show_constructor(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: Any,
    signature: str,
    returns: str,
) -> tuple[str, str] | None:
    """Show the parameters of `__init__` for a class whose metaclass or `__new__` takes anything."""
    if what != "class" or not (signature or "").startswith("(*"):
        return None
    parameters = list(inspect.signature(value.__init__).parameters.values())[1:]
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(plain)), ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register everything."""
    ClientMethod.__call__ = lambda method: method.make  # type: ignore[attr-defined]  # autodoc wants a signature
    app.add_directive("public-names", PublicNames)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("service-calls", ServiceCalls)
    app.connect("source-read", show_pictures)
    app.connect(
        "autodoc-process-docstring", mark_examples, priority=100
    )  # before napoleon
    app.connect("autodoc-process-signature", show_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
