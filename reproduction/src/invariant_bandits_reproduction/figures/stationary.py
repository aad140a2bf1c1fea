"""The paper's figures over a setting, with an online phase in which nothing moves: regret over the number of
drifting dimensions (a), of all features (b, e) and of logged rounds (c, f), and the error of the split (d).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.checks import Array
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction import regret_claims
from invariant_bandits_reproduction.claims import (
    ESTIMATOR,
    PAPER,
    REBUILT,
    Bound,
    Claim,
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
    BLOW_UPS,
    CHANCE,
    EXPERIMENTS,
    Experiment,
    Panel,
    PublishedResult,
)
from invariant_bandits_reproduction.regret_claims import (
    RIGHT_DIMENSIONS,
    BootstrapTest,
    Results,
    Sample,
    Statistic,
    below,
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
"""p_res -> cell of the paper's Figure 2."""
RESIDUAL = {p_res: cell.name for p_res, cell in RESIDUAL_CELLS.items()}
DIMENSION_CELLS = {
    p: _cell(
        f"dimension-{p}",
        PaperWorld(blocks=(p - 2, 2), varying=1, regimes=5),
        *FACING_DIMENSION,
    )
    for p in range(3, 11)
}
"""p -> cell of the paper's Figure 3."""
DIMENSION = {p: cell.name for p, cell in DIMENSION_CELLS.items()}


def grows_test(cells: dict[int, str], policy: str, reading: str) -> BootstrapTest:
    """Test that the mean regret of a policy grows with a setting."""
    trend = regret_claims.trend(cells, policy)
    return BootstrapTest(
        trend, Bound(low=0.0), cells=tuple(cells.values()), reading=reading
    )


def linear_test(cells: dict[int, str], policy: str) -> BootstrapTest:
    """Test that the mean regrets of a policy over a setting lie on a straight line."""
    line = regret_claims.straightness(cells, policy)
    return BootstrapTest(
        line, Bound(low=0.9), cells=tuple(cells.values()), reading="R² = {value}"
    )


def sublinear(p_res: int, cell: str) -> Claim:
    """Claim that the regret of ISD-linUCB in a cell grows sublinearly in T."""
    exponent = regret_claims.growth_exponent(cell, ISD_ORACLE)
    reading = f"exponent {{value}} for p_res = {p_res}"
    return Claim(
        statement="The regret of ISD-linUCB grows sublinearly in T.",
        name=f"sublinear in T, p_res = {p_res}",
        quantity="slope of log regret over log t",
        test=BootstrapTest(exponent, Bound(high=1.0), cells=(cell,), reading=reading),
        source=PAPER,
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


RESIDUAL_CLAIMS = (
    *(sublinear(p_res, cell) for p_res, cell in RESIDUAL.items()),
    Claim(
        statement=(
            "The regret of ISD-linUCB grows with the number of drifting dimensions."
        ),
        name="grows with p_res",
        quantity="regret per further dimension",
        test=grows_test(RESIDUAL, ISD_ORACLE, "{value} per further dimension"),
        source=PAPER,
    ),
    Claim(
        statement=(
            "The regret of ISD-linUCB grows (approximately) linearly with the"
            " number of drifting dimensions."
        ),
        name="linear in p_res",
        quantity="R² of a straight line through the means",
        test=linear_test(RESIDUAL, ISD_ORACLE),
        source=PAPER,
    ),
)
EXPERIMENTS.add(
    Experiment(
        name="residual-dimension",
        title="Regret over the number of drifting dimensions",
        paper="Figure 2 and Section 5.1; Theorems 1 and 2",
        question=(
            "If the split is known, does the regret follow the number of drifting"
            " dimensions, p_res, not p = 10?"
        ),
        caption=(
            "p = 10, T0 = 2,000 logged rounds, T = 100. Left: mean over"
            " repetitions, band of two standard errors. Right: all repetitions,"
            " box from the lower to the upper quartile with the median."
        ),
        cells=tuple(RESIDUAL_CELLS.values()),
        claims=RESIDUAL_CLAIMS,
        draw=draw_residual,
        levels=tuple(
            PublishedResult(cell, policy, published, why=CHANCE)
            for policy, levels in (
                (LINUCB, (36, 38, 35, 40)),
                (ISD_ORACLE, (11, 18, 21, 36)),
            )
            for cell, published in zip(RESIDUAL.values(), levels, strict=True)
        ),
    )
)
DIMENSION_PANEL = Panel(DIMENSION, (LINUCB, ISD_ORACLE, AUTO))
DIMENSION_CLAIMS = (
    Claim(
        statement="The regret of LinUCB increases with the number of features p.",
        name="LinUCB grows with p",
        quantity="regret per further feature",
        test=grows_test(DIMENSION, LINUCB, "{value} per further feature"),
        source=PAPER,
    ),
    Claim(
        statement=(
            "The regret of LinUCB increases linearly with the number of features p."
        ),
        name="LinUCB linear in p",
        quantity="R² of a straight line through the means",
        test=linear_test(DIMENSION, LINUCB),
        source=PAPER,
    ),
    Claim(
        statement=(
            "The regret of ISD-linUCB remains approximately constant, since p_res"
            " is fixed."
        ),
        name="ISD-linUCB flat in p",
        quantity="its slope over p, as a share of LinUCB's",
        test=BootstrapTest(
            regret_claims.ratio_of_trends(DIMENSION, ISD_ORACLE, LINUCB),
            Bound(low=-0.2, high=0.2),
            cells=tuple(DIMENSION.values()),
            reading="its slope is {value} of LinUCB's",
        ),
        source=PAPER,
    ),
    Claim(
        statement=(
            "AutoISD, which does not know the split, stays below ISD-linUCB,"
            " which does."
        ),
        name="AutoISD below ISD-linUCB for every p",
        quantity="largest ratio of mean regrets over p",
        test=below(
            DIMENSION.values(), (AUTO, ISD_ORACLE), "{value} times at the worst p"
        ),
    ),
)
"""What Section 5.1 says of the number of features; a slope is flat within a fifth of LinUCB's."""
EXPERIMENTS.add(
    Experiment(
        name="dimension",
        title="Regret over the number of features",
        paper="Figure 3 and Section 5.1; Theorem 2",
        question=(
            "Two dimensions drift, more and more features are stable: who has to"
            " learn them again?"
        ),
        caption=(
            "p_res = 2, T0 = 2,000, T = 100: mean regret after 100 rounds; bars"
            " are two standard errors."
        ),
        cells=tuple(DIMENSION_CELLS.values()),
        claims=DIMENSION_CLAIMS,
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
)


def comparable(cells: Iterable[str], over: str) -> tuple[Claim, ...]:
    """Return the claims that SW- and D-linUCB are within a tenth of LinUCB, up or down, in every cell."""
    cells = tuple(cells)
    claims = []
    for policy in FORGETTING:
        factor = regret_claims.largest_factor(cells, policy, LINUCB)
        reading = f"a factor of {{value}} at the worst {over}"
        claims.append(
            Claim(
                statement=(
                    f"In this stationary online phase {policy} is comparable to"
                    f" LinUCB, for every {over}."
                ),
                name=f"{policy} comparable to LinUCB over {over}",
                quantity=(
                    "largest factor between its mean regret and LinUCB's, up or down"
                ),
                test=BootstrapTest(
                    factor, Bound(high=1.1), cells=cells, reading=reading
                ),
                source=PAPER,
            )
        )
    return tuple(claims)


NEVER_FORGOTTEN = (
    "With a window of T rounds nothing is ever forgotten: SW-linUCB differs from"
    " LinUCB by its radius alone. The published one, σ√(d·log((1 + wL²/λ)/δ)) +"
    " √λ·S, is wider than LinUCB's log-determinant, and what it explores more is"
    " the whole difference."
)
"""Ends the captions of both comparisons with the policies that forget."""
EXPERIMENTS.add(
    Experiment(
        name="dimension-comparison",
        title="Policies that forget, over the number of features",
        paper="Figure 6 and Appendix B.2",
        question=(
            "Online nothing changes. Do policies made for change, SW- and"
            " D-linUCB, do as LinUCB does?"
        ),
        caption=(
            "As the figure before, with SW-linUCB (window T) and D-linUCB"
            f" (discount 0.999). {NEVER_FORGOTTEN}"
        ),
        cells=tuple(DIMENSION_CELLS.values()),
        claims=comparable(DIMENSION.values(), "p"),
        draw=drawing.over_setting_figure(
            Panel(DIMENSION, FACING_DIMENSION[:-1]), FEATURES, columns=4
        ),
    )
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
    (ISD_PUBLISHED, False, REBUILT),
    (ISD_PUBLISHED, True, REBUILT),
    (ISD_ESTIMATED, False, ESTIMATOR),
)
"""Estimator, whether only runs with the right dimensions count, source of its claims.

The paper counts both kinds of runs. Nearly every run of our estimator has the right dimensions, so that its
right runs would be the same test once more.
"""


def _change_of_gap(policy: str) -> Statistic:
    """Return how the distance to the oracle, in units of its regret, changes from few to many logs."""
    most = regret_claims.ratio(MOST, policy, ISD_ORACLE)
    fewest = regret_claims.ratio(FEWEST, policy, ISD_ORACLE)
    return lambda sample: most(sample) - fewest(sample)


def estimated_claims(policy: str, right_only: bool, source: str) -> tuple[Claim, ...]:
    """Return the paper's claims about an estimated split: close to the oracle, closer, below LinUCB."""
    runs = f"{RECIPES[policy]}, {COUNTED[right_only]}"
    only = policy if right_only else None
    ratio = f"{{value}} times with {runs}"
    change = f"the ratio changes by {{value}} with {runs}"
    worst = f"{{value}} times at the worst T0 with {runs}"
    return (
        Claim(
            statement=(
                "With growing T0 the regret of ISD-linUCB with an estimated split"
                " approaches the oracle's: with 8,000 logged rounds it is at most"
                " 1.15 times the oracle's."
            ),
            name=f"close to the oracle at T0 = 8000: {runs}",
            quantity="mean regret over the oracle's, T0 = 8000",
            test=below((MOST,), (policy, ISD_ORACLE), ratio, 1.15, only),
            source=source,
        ),
        Claim(
            statement=(
                "The regret of ISD-linUCB with an estimated split is closer to"
                " the oracle's with 8,000 logged rounds than with 1,000."
            ),
            name=f"closer with more logs: {runs}",
            quantity="change of that ratio from T0 = 1000 to 8000",
            test=BootstrapTest(
                _change_of_gap(policy),
                Bound(high=0.0),
                cells=LOGGED,
                reading=change,
                right_only=only,
            ),
            source=source,
        ),
        Claim(
            statement=(
                "The regret of ISD-linUCB with an estimated split is lower than"
                " LinUCB's for all T0."
            ),
            name=f"below LinUCB for every T0: {runs}",
            quantity="largest ratio to LinUCB over T0",
            test=below(LOGGED, (policy, LINUCB), worst, 1.0, only),
            source=source,
        ),
    )


PUBLISHED: tuple[tuple[str, tuple[float, ...], bool, str], ...] = (
    (LINUCB, (48.0, 48.0, 48.0), False, CHANCE),
    (ISD_ORACLE, (20.0, 21.0, 18.0), False, CHANCE),
    (ISD_PUBLISHED, (97.0, 58.0, 17.0), False, BLOW_UPS),
    (ISD_PUBLISHED, (24.0, 17.0, 17.0), True, CHANCE),
)
"""Policy, published mean regret per T0, whether only right dimensions count, why ours may differ."""


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
                f"{int(right.sum())} of {len(right)} right, {int((dims > 7).sum())} with p_inv too large;"
                f" regret {every.mean():.1f} (worst {every.max():.0f}), right only "
                + (
                    f"{kept.mean():.1f} (worst {kept.max():.0f})"
                    if len(kept)
                    else "none"
                )
            )
    return table


BELOW_ORACLE = Claim(
    statement=(
        "AutoISD, which estimates everything, stays below ISD-linUCB with oracle"
        " subspaces, all runs."
    ),
    name="AutoISD below the oracle for every T0",
    quantity="largest ratio of mean regrets over T0",
    test=below(LOGGED, (AUTO, ISD_ORACLE), "{value} times at the worst T0"),
)
EXPERIMENTS.add(
    Experiment(
        name="logged-rounds",
        title="Regret over the number of logged rounds, split estimated",
        paper="Figure 4 and Section 5.2; Theorem 3",
        question=(
            "Nothing is known beforehand. Do the logs tell enough about what is"
            " stable, and what if they mislead?"
        ),
        caption=(
            'p = 10, of which 3 drift; T = 500. "Published recipe" is our rebuild'
            " of the paper's estimator, with choices of ours where its"
            " description leaves them open (25 overlapping windows, correlation"
            " threshold by cross-validation, pooled component). On the right only"
            " the repetitions count in which a policy's own split has the right"
            " dimensions, which cannot be known in practice; right dimensions do"
            " not mean right directions. Note the logarithmic axis; bars are two"
            " standard errors."
        ),
        cells=tuple(LOGGED_CELLS.values()),
        claims=(
            *(claim for tested in TESTED for claim in estimated_claims(*tested)),
            BELOW_ORACLE,
        ),
        draw=draw_logged,
        panels=LOGGED_PANELS,
        levels=tuple(
            PublishedResult(
                cell=cell,
                policy=policy,
                published=level,
                right_only=right_only,
                why=why,
            )
            for policy, levels, right_only, why in PUBLISHED
            for cell, level in zip(LOGGED, levels, strict=True)
        ),
        table=right_splits,
    )
)
EXPERIMENTS.add(
    Experiment(
        name="logged-rounds-comparison",
        title="Policies that forget, over the number of logged rounds",
        paper="Figure 7 and Appendix B.2",
        question=(
            "The same comparison with SW- and D-linUCB where the split is estimated."
        ),
        caption=(
            "T = 500, all repetitions; SW-linUCB with window T, D-linUCB with"
            f" discount 0.999. {NEVER_FORGOTTEN}"
        ),
        cells=tuple(LOGGED_CELLS.values()),
        claims=comparable(LOGGED, "T0"),
        draw=drawing.over_setting_figure(
            Panel(PLACES, (LINUCB, *FORGETTING, ISD_ORACLE, ISD_ESTIMATED)),
            "logged rounds T0",
        ),
    )
)


def split_errors(sample: Sample, recipe: str, right_only: bool) -> list[Array]:
    """‖Π̂ − Π‖ of the repetitions that count (n,), for every T0."""
    errors = []
    for cell in SPLIT_CELLS.values():
        values = sample.observed(cell.name, recipe, "projection error")
        right = sample.observed(cell.name, recipe, RIGHT_DIMENSIONS) == 1.0
        errors.append(np.asarray(values[right] if right_only else values))
    return errors


def rate(recipe: str, right_only: bool) -> Statistic:
    """Slope of the log median error over log T0."""

    def statistic(sample: Sample) -> float:
        errors = split_errors(sample, recipe, right_only)
        if any(len(values) == 0 for values in errors):
            return float("nan")
        medians = [np.median(values) for values in errors]
        return regret_claims.slope(np.log(np.array(list(SPLIT_CELLS))), np.log(medians))

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


def rate_claim(recipe: str, right_only: bool, source: str) -> Claim:
    """Return the claim that the error of a split falls as 1/√T0, within ±0.15 of the exponent."""
    runs = f"{RECIPES[recipe]}, {COUNTED[right_only]}"
    return Claim(
        statement=(
            "The distance between the estimated and the true subspaces, times"
            " √T0, stays constant."
        ),
        name=f"error falls as 1/√T0: {runs}",
        quantity="slope of the log median of ‖Π̂−Π‖ over log T0",
        test=BootstrapTest(
            rate(recipe, right_only),
            Bound(-0.65, -0.35),
            cells=tuple(cell.name for cell in SPLIT_CELLS.values()),
            reading=f"exponent {{value}} with {runs}",
            right_only=recipe if right_only else None,
        ),
        source=source,
    )


EXPERIMENTS.add(
    Experiment(
        name="projection-error",
        title="How fast the estimated split approaches the true one",
        paper="Figure 5 and Appendix B.1; Assumption 3",
        question=(
            "Does the distance between the estimated and the true subspaces fall"
            " as 1/√T0?"
        ),
        caption=(
            "Median over repetitions of the operator norm of the difference of"
            " the projections (1 where the dimensions are wrong), bands from the"
            " lower to the upper quartile of all runs."
        ),
        cells=tuple(SPLIT_CELLS.values()),
        claims=tuple(rate_claim(*tested) for tested in TESTED),
        draw=draw_split_errors,
        table=median_errors,
    )
)
