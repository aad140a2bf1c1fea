"""The command that lists the licences of what is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from invariant_bandits.cli.common import AsJson, print_json, width
from invariant_bandits.cli.common import plain_console as console


def licences(as_json: AsJson = False) -> None:
    """List the licences of this package and of everything it needs that is installed."""
    from invariant_bandits.licences import licences as found
    from invariant_bandits.reports.page import table_lines

    installed = found()
    if as_json:
        print_json({"packages": [asdict(one) for one in installed]})
        return
    rows = [[one.package, one.version, one.words, "needed" if one.needed else "extra"] for one in installed]
    console.print("\n".join(table_lines(("package", "version", "licence", ""), rows, width())))


COMMANDS: tuple[Callable[..., None], ...] = (licences,)
