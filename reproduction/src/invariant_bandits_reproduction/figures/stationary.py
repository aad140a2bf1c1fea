"""The paper's figures over a setting, with an online phase in which nothing moves: regret over the number of
drifting dimensions (a), of all features (b, e) and of logged rounds (c, f), and the error of the split (d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.checks import Array
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction import claims
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.claims import (
    RIGHT_DIMENSIONS,
    Bound,
    Claim,
    Results,
    Sample,
    below,
)
from invariant_bandits_reproduction.contenders import (
    AUTO,
    ISD_ESTIMATED,
    ISD_ORACLE,
    ISD_PUBLISHED,
    LINUCB,
)
from invariant_bandits_reproduction.figures import drawing
from invariant_bandits_reproduction.figures.experiment import (
    REASONS,
    Panel,
    PublishedResult,
    add_experiment,
    claim_words,
)

FORGETTING = (who.SW_LINUCB, who.D_LINUCB)
FACING_DIMENSION = (LINUCB, *FORGETTING, ISD_ORACLE, AUTO)
FEATURES = "number of features p, of which 2 drift"
DRIFTING_BLOCKS = {2: (3,), 4: (0,), 6: (0, 3), 8: (0, 1, 2)}
"""p_res -> which of the blocks of sizes (4, 1, 3, 2) drift."""


def _cell(name: str, world: PaperWorld, *policies: str) -> Cell:
    return Cell(
        name, PaperEpisodes(world, logged=2000, windows=5), 100, who.named(*policies)
    )


RESIDUAL_CELLS = {
    p_res: _cell(
        f"residual-{p_res}",
        PaperWorld(varying=blocks, regimes=5),
        LINUCB,
        ISD_ORACLE,
        AUTO,
    )
    for p_res, blocks in DRIFTING_BLOCKS.items()
}
RESIDUAL = {p_res: cell.name for p_res, cell in RESIDUAL_CELLS.items()}
DIMENSION_CELLS = {
    p: _cell(
        f"dimension-{p}",
        PaperWorld(blocks=(p - 2, 2), varying=1, regimes=5),
        *FACING_DIMENSION,
    )
    for p in range(3, 11)
}
DIMENSION = {p: cell.name for p, cell in DIMENSION_CELLS.items()}


def grows_linearly(
    experiment: str, cells: dict[int, str], policy: str
) -> tuple[Claim, Claim]:
    """The claims that the mean regret of a policy grows with a setting, and that it does so on a straight
    line.
    """
    grows, linear = (claim_words(experiment, claim) for claim in ("grows", "linear"))
    trend, line = claims.trend(cells, policy), claims.straightness(cells, policy)
    every = tuple(cells.values())
    return Claim(*grows, trend, Bound(low=0.0), every), Claim(
        *linear, line, Bound(low=0.9), every
    )


def draw_residual(results: Results, theme_name: str) -> Figure:
    """Left: mean regret over rounds; right: every repetition at the horizon."""
    sample, palette = Sample(results), drawing.PALETTE[theme_name]
    with drawing.panels(theme_name, 2, sharey=False) as (figure, (left, right)):
        for shade, marker, (p_res, cell) in zip(
            ("sky", "blue", "green", "violet"), "osD^", RESIDUAL.items(), strict=True
        ):
            drawing.over_rounds(left, sample, cell, (ISD_ORACLE,), theme_name)
            left.lines[-1].set(
                color=palette[shade], label=f"p_res = {p_res}", marker=marker, ls="-"
            )
            left.collections[-1].set_facecolor(palette[shade])
        left.set(
            ylim=(0.0, 1.35 * left.get_ylim()[1]),
            title="ISD-linUCB, oracle subspaces: mean",
        )
        left.legend(frameon=False, loc="upper left", ncols=2)
        groups = {
            str(p_res): sample.final(cell, ISD_ORACLE)
            for p_res, cell in RESIDUAL.items()
        }
        drawing.distributions(right, groups, ISD_ORACLE, theme_name)
        right.set(
            xlabel="drifting dimensions p_res",
            title="after 100 rounds: every repetition",
        )
    return figure


add_experiment(
    name="residual-dimension",
    cells=RESIDUAL_CELLS.values(),
    claims=(
        *(
            Claim(
                *claim_words("residual-dimension", "sublinear", p_res=p_res),
                *(claims.growth_exponent(cell, ISD_ORACLE), Bound(high=1.0), (cell,)),
            )
            for p_res, cell in RESIDUAL.items()
        ),
        *grows_linearly("residual-dimension", RESIDUAL, ISD_ORACLE),
    ),
    draw=draw_residual,
    levels=tuple(
        PublishedResult(cell, policy, published, why=REASONS["chance"])
        for policy, levels in (
            (LINUCB, (36, 38, 35, 40)),
            (ISD_ORACLE, (11, 18, 21, 36)),
        )
        for cell, published in zip(RESIDUAL.values(), levels, strict=True)
    ),
)
DIMENSION_PANEL = Panel(DIMENSION, (LINUCB, ISD_ORACLE, AUTO))
add_experiment(
    name="dimension",
    cells=DIMENSION_CELLS.values(),
    claims=(
        *grows_linearly("dimension", DIMENSION, LINUCB),
        Claim(
            *claim_words("dimension", "flat"),
            claims.ratio_of_trends(DIMENSION, ISD_ORACLE, LINUCB),
            *(Bound(low=-0.2, high=0.2), tuple(DIMENSION.values())),
        ),
        below(
            *claim_words("dimension", "below"), DIMENSION.values(), (AUTO, ISD_ORACLE)
        ),
    ),
    draw=drawing.over_setting_figure(DIMENSION_PANEL, FEATURES),
    panels=(DIMENSION_PANEL,),
    levels=(
        *map(
            PublishedResult,
            DIMENSION.values(),
            [LINUCB] * 8,
            (12, 14, 18, 23, 26, 30, 32, 38),
        ),
        *(PublishedResult(cell, ISD_ORACLE, 7.0) for cell in DIMENSION.values()),
    ),
)


def comparable(cells: Iterable[str], over: str) -> tuple[Claim, ...]:
    """Return the claims that SW- and D-linUCB are within a tenth of LinUCB, up or down, in every cell."""
    cells = tuple(cells)
    return tuple(
        Claim(
            *claim_words(
                "dimension-comparison", "comparable", policy=policy, over=over
            ),
            claims.largest_factor(cells, policy, LINUCB),
            Bound(high=1.1),
            cells,
        )
        for policy in FORGETTING
    )


add_experiment(
    name="dimension-comparison",
    cells=DIMENSION_CELLS.values(),
    claims=comparable(DIMENSION.values(), "p"),
    draw=drawing.over_setting_figure(
        Panel(DIMENSION, FACING_DIMENSION[:-1]), FEATURES, columns=4
    ),
)


def _logged_cell(name: str, logged: int, horizon: int, *policies: str) -> Cell:
    world = PaperEpisodes(logged=logged)
    return Cell(
        f"{name}-{logged}", world, horizon, who.named(*policies), observe="split"
    )


PLAYED = (
    LINUCB,
    *FORGETTING,
    who.ISD_KNOWN,
    ISD_ORACLE,
    ISD_ESTIMATED,
    ISD_PUBLISHED,
    AUTO,
)
LOGGED_CELLS = {
    logged: _logged_cell("logged", logged, 500, *PLAYED)
    for logged in (1000, 3500, 8000)
}
LOGGED = tuple(cell.name for cell in LOGGED_CELLS.values())
FEWEST, MOST = LOGGED[0], LOGGED[-1]
PLACES = {f"{logged:,}": cell.name for logged, cell in LOGGED_CELLS.items()}
RECIPES = {
    ISD_ESTIMATED: "our estimator",
    ISD_PUBLISHED: "our rebuild of the paper's estimator",
}
SPLIT_CELLS = LOGGED_CELLS | {
    logged: _logged_cell("split", logged, 10, *RECIPES) for logged in (2000, 5500)
}
SPLIT_CELLS = dict(sorted(SPLIT_CELLS.items()))
COUNTED = {False: "all runs", True: "runs with the right dimensions"}
TESTED = (
    (ISD_PUBLISHED, False, "rebuilt"),
    (ISD_PUBLISHED, True, "rebuilt"),
    (ISD_ESTIMATED, False, "estimator"),
)
"""Estimator, whether only runs with the right dimensions count, source of its claims.

The paper counts both kinds of runs. Nearly every run of our estimator has the right dimensions, so that its
right runs would be the same test once more.
"""


def _change_of_gap(policy: str) -> Callable[[Sample], float]:
    """Return how the distance to the oracle, in units of its regret, changes from few to many logs."""
    most, fewest = (claims.ratio(cell, policy, ISD_ORACLE) for cell in (MOST, FEWEST))
    return lambda sample: most(sample) - fewest(sample)


def _estimated_claims(policy: str, right_only: bool, source: str) -> tuple[Claim, ...]:
    runs = f"{RECIPES[policy]}, {COUNTED[right_only]}"
    only = policy if right_only else None
    close, closer, low = (
        claim_words("logged-rounds", claim, runs=runs)
        for claim in ("close", "closer", "below LinUCB")
    )
    return (
        below(*close, (MOST,), (policy, ISD_ORACLE), 1.15, source, only),
        Claim(
            *closer,
            _change_of_gap(policy),
            Bound(high=0.0),
            LOGGED,
            source,
            only,
        ),
        below(*low, LOGGED, (policy, LINUCB), 1.0, source, only),
    )


PUBLISHED: tuple[tuple[str, tuple[float, ...], bool, str], ...] = (
    (LINUCB, (48.0, 48.0, 48.0), False, "chance"),
    (ISD_ORACLE, (20.0, 21.0, 18.0), False, "chance"),
    (ISD_PUBLISHED, (97.0, 58.0, 17.0), False, "blow-ups"),
    (ISD_PUBLISHED, (24.0, 17.0, 17.0), True, "chance"),
)


SHOWN = (LINUCB, ISD_PUBLISHED, ISD_ESTIMATED, ISD_ORACLE, who.ISD_KNOWN, AUTO)
LOGGED_PANELS = tuple(Panel(PLACES, SHOWN, right_only) for right_only in (False, True))


def draw_logged(results: Results, theme_name: str) -> Figure:
    """Left: all repetitions; right: only those whose own split has the right dimensions."""
    with drawing.panels(theme_name, 2, height=3.4, sharey=True) as (
        figure,
        (left, right),
    ):
        for axis, panel in zip((left, right), LOGGED_PANELS, strict=True):
            drawing.over_setting(axis, results, panel, theme_name)
            axis.set_xlabel("logged rounds T0")
            drawing.plain_log_axis(axis)
        left.set_title("all repetitions")
        right.set(title="only those with the right dimensions", ylabel="")
        drawing.legend(figure, left)
    return figure


def right_splits(results: Results) -> dict[str, dict[str, str]]:
    """How often each recipe finds the right dimensions, and how many runs that leaves."""
    sample = Sample(results)
    table: dict[str, dict[str, str]] = {}
    for policy in RECIPES:
        for logged, cell in LOGGED_CELLS.items():
            right = sample.observed(cell.name, policy, RIGHT_DIMENSIONS)
            dims = sample.observed(cell.name, policy, "invariant dimensions")
            every = sample.final(cell.name, policy)
            kept = sample.final(cell.name, policy)[right == 1.0]
            table.setdefault(policy, {})[f"T0 = {logged:,}"] = (
                f"{int(right.sum())} of {len(right)} right, {int((dims > 7).sum())} with p_inv too large; "
                f"regret {every.mean():.1f} (worst {every.max():.0f}), right only "
                + (
                    f"{kept.mean():.1f} (worst {kept.max():.0f})"
                    if len(kept)
                    else "none"
                )
            )
    return table


add_experiment(
    name="logged-rounds",
    cells=LOGGED_CELLS.values(),
    claims=(
        *(claim for tested in TESTED for claim in _estimated_claims(*tested)),
        below(
            *claim_words("logged-rounds", "below the oracle"),
            LOGGED,
            (AUTO, ISD_ORACLE),
        ),
    ),
    draw=draw_logged,
    panels=LOGGED_PANELS,
    levels=tuple(
        PublishedResult(cell, policy, level, right_only, REASONS[why])
        for policy, levels, right_only, why in PUBLISHED
        for cell, level in zip(LOGGED, levels, strict=True)
    ),
    table=right_splits,
)
add_experiment(
    name="logged-rounds-comparison",
    cells=LOGGED_CELLS.values(),
    claims=comparable(LOGGED, "T0"),
    draw=drawing.over_setting_figure(
        Panel(PLACES, (LINUCB, *FORGETTING, ISD_ORACLE, ISD_ESTIMATED)),
        "logged rounds T0",
    ),
)


def split_errors(sample: Sample, recipe: str, right_only: bool) -> list[Array]:
    """‖Π̂ − Π‖ of the repetitions that count (n,), for every T0."""
    errors = []
    for cell in SPLIT_CELLS.values():
        values = sample.observed(cell.name, recipe, "projection error")
        right = sample.observed(cell.name, recipe, RIGHT_DIMENSIONS) == 1.0
        errors.append(np.asarray(values[right] if right_only else values))
    return errors


def rate(recipe: str, right_only: bool) -> Callable[[Sample], float]:
    """Slope of the log median error over log T0."""

    def statistic(sample: Sample) -> float:
        errors = split_errors(sample, recipe, right_only)
        if any(len(values) == 0 for values in errors):
            return float("nan")
        medians = [np.median(values) for values in errors]
        return claims.slope(np.log(np.array(list(SPLIT_CELLS))), np.log(medians))

    return statistic


def draw_split_errors(results: Results, theme_name: str) -> Figure:
    """Left: median error over T0; right: times √T0. Thin lines: only the runs with the right
    dimensions."""
    sample = Sample(results)
    logged = np.array(list(SPLIT_CELLS), dtype=float)
    with drawing.panels(theme_name, 2) as (figure, (left, right)):
        for recipe in RECIPES:
            for right_only, width in ((False, 1.8), (True, 0.9)):
                errors = split_errors(sample, recipe, right_only)
                low, middle, high = np.array(
                    [
                        np.quantile(v, [0.25, 0.5, 0.75]) if len(v) else [np.nan] * 3
                        for v in errors
                    ]
                ).T
                style = drawing.look(recipe, theme_name)
                style["ls"] = ":" if right_only else style["ls"]
                label = recipe + (", right dimensions only" if right_only else "")
                for axis, factor in (
                    (left, np.ones_like(logged)),
                    (right, np.sqrt(logged)),
                ):
                    axis.plot(logged, middle * factor, lw=width, label=label, **style)
                    if not right_only:
                        band = {"color": style["color"], "alpha": 0.15, "lw": 0}
                        axis.fill_between(logged, low * factor, high * factor, **band)
        for axis, title in (
            (left, r"$\|\hat{\Pi}-\Pi\|$"),
            (right, r"$\|\hat{\Pi}-\Pi\|\cdot\sqrt{T_0}$"),
        ):
            axis.set(title=title, xscale="log", yscale="log", xlabel="logged rounds T0")
            axis.set_xticks(logged, [f"{int(x):,}" for x in logged])
            axis.minorticks_off()
        drawing.legend(figure, left, columns=2)
    return figure


def median_errors(results: Results) -> dict[str, dict[str, str]]:
    """Return the medians that the figure shows, with the number of repetitions, per estimator."""
    sample = Sample(results)
    table: dict[str, dict[str, str]] = {}
    for recipe, right_only, _ in TESTED:
        errors = split_errors(sample, recipe, right_only)
        table[f"{RECIPES[recipe]}, {COUNTED[right_only]}: median of ‖Π̂−Π‖"] = {
            f"T0 = {logged:,}": f"{np.median(values):.3f} ({len(values)} runs)"
            if len(values)
            else "no run"
            for logged, values in zip(SPLIT_CELLS, errors, strict=True)
        }
    return table


add_experiment(
    name="projection-error",
    cells=SPLIT_CELLS.values(),
    claims=tuple(
        Claim(
            *claim_words(
                "projection-error",
                "falls",
                runs=f"{RECIPES[recipe]}, {COUNTED[right_only]}",
            ),
            rate(recipe, right_only),
            Bound(-0.65, -0.35),
            tuple(cell.name for cell in SPLIT_CELLS.values()),
            source,
            recipe if right_only else None,
        )
        for recipe, right_only, source in TESTED
    ),
    draw=draw_split_errors,
    table=median_errors,
)
