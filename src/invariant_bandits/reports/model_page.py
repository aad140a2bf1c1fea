"""What a fitted model says about its log, and what an update changed: sections for page and terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, in_sentence
from invariant_bandits.decomposition.effects import (
    DISPLAY,
    POINTS,
    REWARD,
    EffectPath,
    effect_paths,
)
from invariant_bandits.decomposition.estimator import (
    NOT_DETECTED,
    InvariantSubspaceDecomposition,
    p_value_words,
)
from invariant_bandits.features.arm_maps import PooledLevels
from invariant_bandits.features.sharing import has_binary_rewards
from invariant_bandits.model.model import Model
from invariant_bandits.model.update import ALARM_LEVEL, Update, drifting
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.alarm import falls_in_words
from invariant_bandits.policies.auto import Belief
from invariant_bandits.reports import page, values
from invariant_bandits.reports.page import (
    WIDTH,
    Cell,
    Mark,
    Section,
    as_page,
    as_text,
    number,
)

if TYPE_CHECKING:
    from invariant_bandits.logs.arms import ArmTable

IN_POINTS = (
    "Rewards are 0 or 1, so numbers are in percentage points, and levels in per cent."
)
MOST_CURVES = 9
"""Curves of one picture: more cannot be told apart."""
SMALLEST_P_VALUE = 1e-300
"""A p-value of 0 is shown as one below this: it has no logarithm."""
MOST_LEVELS = 20
"""Arms that are shown where there are many."""


def report(model: Model, update: Update | None = None) -> str:
    """Return the HTML page, self-contained; what an update changed comes first."""
    return as_page(
        _title(model), headline(model), sections(model, update, pictures=True)
    )


def text(
    model: Model,
    update: Update | None = None,
    *,
    columns: bool = True,
    width: int = WIDTH,
) -> str:
    """Return the same for a terminal of this width, without the list of columns where it was just shown."""
    shown = list(sections(model, update))
    return as_text(
        _title(model), headline(model), shown if columns else shown[:-1], width
    )


def _title(model: Model) -> str:
    return f"What lasts and what changed: {model.schema.reward_words}"


def headline(model: Model) -> str:
    """Return the finding in one sentence, after what must be known before it."""
    if model.arms is None:
        split = model.decomposition.split_
        finding = (
            f"{split.residual_dim} of {split.dim} dimensions drift,"
            f" in {split.invariant_dim} no drift was detected"
        )
    else:
        finding = _effects_in_words(effect_paths(model), model.arms)
    moments = model.moments
    said = (
        f"{finding}; {moments.rounds:,} logged rounds in {moments.windows} windows,"
        f" policy {model.policy_name}, fitted by invariant-bandits {model.version}."
    )
    if model.shared_slopes is None:
        return said
    return f"{in_sentence(model.shared_slopes)} {said}"


def _effects_in_words(effects: list[EffectPath], arms: ArmTable) -> str:
    names = [effect.title for effect in effects if effect.drifts]
    shown = names[:4] + ["…"] * (len(names) > 4)
    named = f" ({', '.join(shown)})" if names else ""
    untested = sum(np.isnan(effect.p_value) for effect in effects)
    others = f", {untested} have too few clicks to tell" if untested else ""
    return (
        f"{len(names)} of {len(effects)} effects drift{named}{others}; {len(arms)} arms, "
        f"{len(arms.active)} of them active"
    )


def sections(
    model: Model, update: Update | None = None, *, pictures: bool = False
) -> Iterator[Section]:
    """Yield everything there is to say, the most important first."""
    belief = model.policy.explain(model.names)
    if update is not None:
        yield _changes(update)
    yield Section("Read this first", values.warnings(model))
    if belief is not None and model.policy.rounds:
        yield Section("What the policy believes now", str(belief).splitlines())
    if model.arms is None:
        yield blocks(model, _overview(model) if pictures else "")
        yield _features(model)
    else:
        yield _arms(model, model.arms, pictures)
    yield _effects(model, pictures)
    if belief is not None:
        yield _exploration(model, belief)
    yield _expected_value(model)
    yield Section("Data quality", model.quality.describe().splitlines())
    yield _windows(model.moments)
    yield Section(
        title="Columns",
        words=[],
        headings=("role", "column", "why"),
        rows=model.schema.rows(),
    )


MOST_UNDETECTED = 12
"""Effects without detected drift of which a terminal shows each; of more it shows the number."""


def _verdict(row: dict[str, Any]) -> Mark:
    """What is said of a block of directions or of an effect."""
    kinds = {"drifts": "bad", "cannot tell": "unsure"}
    return Mark(row["verdict"], kinds.get(row["verdict"], "good"))


def _unit(model: Model) -> str:
    """Unit of what the features of rows add to the reward."""
    return POINTS if has_binary_rewards(model.moments) else REWARD


def _factor(unit: str) -> float:
    """By how much a number in this unit is multiplied where people read it: per cent or points."""
    return DISPLAY[unit][0]


def _with_error(factor: float, value: float, error: float) -> Mark:
    """A cell with a value and its standard error, in the unit in which people read it."""
    return number(f"{factor * value:+.3g} ± {factor * error:.2g}")


def _in_unit(model: Model, words: str) -> list[str]:
    """The words above a table of feature rows, with the unit of its numbers."""
    return [f"{words} {IN_POINTS}"] if _unit(model) == POINTS else [words]


def blocks(model: Model, picture: str = "") -> Section:
    """Return the table of all blocks."""
    factor = _factor(_unit(model))
    headings = (
        "block",
        "verdict",
        "dim",
        "p-value",
        "drift",
        "in reward",
        "error",
        "detectable",
        "main features",
    )
    rows: list[list[Cell]] = []
    for block in values.blocks(model.decomposition):
        row = [number(str(block["number"])), _verdict(block), number(str(block["dim"]))]
        row.append(number(p_value_words(block["log_p_value"])))
        for name in ("drift", "drift_in_reward", "error", "detectable"):
            row.append(number(f"{factor * block[name]:.3g}"))
        rows.append([*row, block["main_features"]])
    words = (
        "The reward model has two parts. Along drifting directions no single coefficient fits all windows;"
        " along the others one does, as far as the log can tell. p-value: how likely coefficients that differ"
        " so much would be if they were all equal; drift: standard deviation of the coefficient between"
        " windows beyond sampling error; in reward: what such a drift changes in the reward of an action one"
        " standard deviation away; error: standard error within one window; detectable: the drift that would"
        " have been detected in about four of five such logs. Stable is said only if half the size of the"
        " coefficients is more."
    )
    return Section(
        title="Directions",
        words=_in_unit(model, words),
        headings=headings,
        rows=rows,
        picture=picture,
    )


def _features(model: Model) -> Section:
    factor = _factor(_unit(model))
    rows: list[list[Cell]] = []
    for feature in values.features(model.decomposition):
        last = number("silent")
        if feature["last_error"] is not None:
            last = _with_error(
                factor, feature["last_coefficient"], feature["last_error"]
            )
        every = _with_error(factor, feature["coefficient"], feature["error"])
        share = number(f"{100.0 * feature['stable_share']:.0f} %")
        rows.append([feature["name"], share, every, last])
    words = (
        "Stable share: how much of the feature lies in the stable part, 0 to 100 %. Coefficients: reward per"
        " unit of the feature, ± one standard error; a drifting feature should be judged by the last window."
    )
    headings = ("feature", "stable share", "all windows", "last window")
    return Section(
        title="Features", words=_in_unit(model, words), headings=headings, rows=rows
    )


def _levels(policy: Any, arms: ArmTable) -> Section:
    """The most played of many arms, with their levels about the population."""
    levels = policy.deviations[:, 0]
    error = np.sqrt(policy.covariances[:, 0, 0])
    plays = np.array([arm.plays for arm in arms.arms])
    rows: list[list[Cell]] = []
    for index in np.argsort(-plays, kind="stable")[:MOST_LEVELS].tolist():
        arm = arms.arms[index]
        level = _with_error(1.0, levels[index], error[index])
        rows.append([arm.label, number(f"{arm.plays:,}"), level])
    unit = "log-odds" if policy.link == "logit" else "units of the reward"
    deviation = float(np.sqrt(policy.spread[0]))
    few = int((error > 0.5 * deviation).sum())
    words = (
        f"{len(arms):,} arms, the most played of them below. Levels are about what the arms share, in {unit}."
        f" Their standard deviation in the population is {deviation:.3g}; {few:,} arms have so few rounds"
        " that their level is mostly that of the population."
    )
    return Section(
        title="Arms", words=[words], headings=("arm", "plays", "level"), rows=rows
    )


def _arms(model: Model, arms: ArmTable, pictures: bool) -> Section:
    if _is_pooled(model):
        return _levels(model.policy, arms)
    mean, error, played = values.arm_rewards(model)
    recent = np.column_stack(values.recent_rewards(mean, error, played)).round(12)
    rows: list[list[Cell]] = []
    for index, (label, plays, first, last, state) in enumerate(arms.rows()):
        known = index < len(recent) and bool(np.isfinite(recent[index, 0]))
        shown = f"{recent[index, 0]:.4g} ± {recent[index, 1]:.2g}" if known else "?"
        mark = Mark(state, "good" if state == "active" else "unsure")
        rows.append([label, mark, number(plays), first, last, number(shown)])
    drawing = ""
    if pictures:
        from invariant_bandits.reports import plots

        plays_of = np.array([arm.plays for arm in arms.arms[: len(mean)]])
        figure = plots.arm_rewards(
            mean, error, plays_of, arms.labels, edges=model.moments.edges
        )
        name = "Mean reward of every arm over the windows"
        caption = (
            "Gaps: windows in which an arm was not played. Bars: 95 % intervals of the mean, whatever the"
            " contexts. Recent: over the latest windows that hold 100 plays of the arm together, ± one"
            " standard error."
        )
        drawing = page.picture(page.svg_of(figure), "arms", name, caption)
    headings = ("arm", "", "plays", "first use", "last use", "recent mean reward")
    return Section(
        title="Arms", words=[], headings=headings, rows=rows, picture=drawing
    )


OF_DIRECTIONS = (
    "What one standard deviation of a feature adds to the reward, or of the mixture of features (each in its"
    " standard deviations) that is named; the verdict is that of its block of directions."
)
OF_ARMS = (
    "Numbers are in units of the reward; where it is 0 or 1, levels are in per cent and other effects in"
    " percentage points. Level: what the arm earns in the mean context; other effects: what one standard"
    " deviation of the column adds to that. Arms that share a slope, or a category of the catalogue, are"
    " named by what they share. Estimate: over the whole log, ± one standard error; drift: standard deviation"
    " between windows beyond sampling error; p-value: how likely estimates that differ so much between"
    " windows would be without drift. An effect is said to drift if that still holds for all of them together"
    " (Holm, 5 %). Stable is said only where a drift of half the effect would have been detected; elsewhere,"
    " no drift above the number given was detected."
)


def _effects(model: Model, pictures: bool) -> Section:
    effects = values.effects(model)
    shown = effects
    undetected = sum(effect["verdict"] == NOT_DETECTED for effect in effects)
    few = pictures or undetected <= MOST_UNDETECTED
    if not few:
        shown = [effect for effect in effects if effect["verdict"] != NOT_DETECTED]
    headings: tuple[str, ...] = (
        "effect",
        "verdict",
        "from what to what, when",
        "estimate",
        "drift",
        "detectable",
        "p-value",
    )
    rows = [_effect_row(effect) for effect in shown]
    drawing = ""
    if model.arms is None:
        words = _in_unit(model, OF_DIRECTIONS)
    else:
        words = [OF_ARMS]
        headings = ("arm", *headings)
        for row, effect in zip(rows, shown, strict=True):
            row.insert(0, effect["arm"])
        # Without arms the overview has the curves.
        drawing = _effect_curves(model, effects) if pictures else ""
    if not few:
        words.append(
            f"In {undetected:,} other effects no drift was detected; the report lists each with its estimate."
        )
    return Section(
        title="Drift", words=words, headings=headings, rows=rows, picture=drawing
    )


def _effect_curves(model: Model, effects: list[dict[str, Any]]) -> str:
    drifting_effects = sum(effect["drifts"] for effect in effects)
    curves = min(max(drifting_effects, 3), MOST_CURVES, max(len(effects), 1))
    return page.picture(
        page.svg_of(model.plot(most=curves)[0].figure),
        "effects",
        f"{drifting_effects} drifting effects over the windows",
        "Effects over the windows with their 95 % intervals, in units of the reward; drifting ones are"
        " dashed.",
    )


def _effect_row(effect: dict[str, Any]) -> list[Cell]:
    """Cells of one effect; what a test would say is empty where none was possible."""
    factor = _factor(effect["unit"])
    detectable = ""
    p_value = ""
    if not np.isnan(effect["p_value"]):
        detectable = f"{factor * effect['detectable']:.2g}"
        p_value = p_value_words(float(np.log(max(effect["p_value"], SMALLEST_P_VALUE))))
    return [
        effect["effect"],
        _verdict(effect),
        effect["words"] if effect["drifts"] else "",
        _with_error(factor, effect["estimate"], effect["error"]),
        number(f"{factor * effect['drift']:.2g}"),
        number(detectable),
        number(p_value),
    ]


def _expected_value(model: Model) -> Section:
    value = model.value
    words = []
    if model.arms is None:
        words.append(_explained(model.decomposition, model.moments))
    if value is None:
        words.append(
            "What the policy would have earned was not asked for when fitting."
        )
        return Section("Expected value", words)
    if not value["known"]:
        reason = values.sentences([str(value["reason"])])
        return Section("Expected value", [*words, *reason])
    words.append(
        f"Fitted on {value['fitted_rounds']:,} rounds and evaluated once on the {value['played_rounds']:,}"
        f" after them, the last of the log, which earned {value['logged']} per round. Gain: per round over"
        " what the log did, with its 95 % interval. The earlier rounds are cut into"
        f" {value.get('windows', 'as many')} windows, as the model's are. The command evaluate cuts into 8 by"
        " default and takes all rounds of the log, so that it may estimate another gain."
    )
    headings = ("policy", "by", "gain", "would it have helped?")
    rows: list[list[Cell]] = []
    for line in value["lines"]:
        gain = "?"
        if line["gain"] is not None:
            gain = f"{line['gain']:+.3g} [{line['low']:+.3g}, {line['high']:+.3g}]"
        rows.append([line["policy"], line["estimator"], number(gain), line["verdict"]])
    return Section(title="Expected value", words=words, headings=headings, rows=rows)


def _explained(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> str:
    """How much of the variance of rewards within windows fixed coefficients γ explain: Σ 2γᵀc_i − γᵀG_iγ."""
    total = float(moments.reward_square.sum())
    if total <= 0.0:
        return "Rewards are constant within every window: there is nothing to explain."
    gram = moments.gram.sum(axis=0)
    cross = moments.cross.sum(axis=0)

    def share(coefficients: Array) -> float:
        return (
            float(2.0 * coefficients @ cross - coefficients @ gram @ coefficients)
            / total
        )

    freedom = np.maximum(moments.counts - moments.dim - 1, 0.0)
    noise = float(fit.window_noise_ @ freedom / freedom.sum())
    of_each_window = 1.0 - noise * float((moments.counts - 1).sum()) / total
    same = share(fit.paths_.weighted_mean()[0])
    stable = share(fit.component_)
    return (
        "Share of the variance of rewards within windows that the features explain:"
        f" {_percent(of_each_window)} with coefficients of each window's own,"
        f" {_percent(same)} with the same ones in all windows,"
        f" {_percent(stable)} by the part without detected drift."
    )


def _percent(share: float) -> str:
    return f"{100.0 * max(share, 0.0):.3g} %"


def _is_pooled(model: Model) -> bool:
    """Whether the arms have levels only, because there are too many of them."""
    return isinstance(model.feature_map, PooledLevels)


def _exploration(model: Model, belief: Belief) -> Section:
    """How AutoISD will explore, whether it can give an alarm, and which falls of arms it would notice."""
    policy: Any = model.policy
    caution = policy.caution
    reason = belief.no_alarm_because
    alarm = "An alarm will say if it drifts after all where no drift was detected."
    if reason:
        alarm = f"No alarm can be given: {reason}."
    limits = {None: "as often as they pay", 0.0: "only once the logs are doubted"}
    spent = f"for at most {100.0 * (caution or 0.0):g} % of the believed gain"
    tested = f"are tested {limits.get(caution, spent)}"
    if _is_pooled(model):
        tested = "are not tested: there are too many arms"
    words = [
        "It plays the action of largest expected reward plus what the logs leave open. Neglected actions"
        f" {tested}.",
        alarm,
    ]
    if belief.noticeable_levels and not reason:
        noticed = falls_in_words(belief.noticeable_levels)
        words.append(f"{noticed[0].upper()}{noticed[1:]}.")
    return Section("How it will explore", words)


def _windows(moments: WindowedMoments) -> Section:
    rows: list[list[Cell]] = []
    for window in values.windows(moments):
        begins = window["begins"]
        rows.append(
            [
                number(str(window["number"])),
                "" if begins is None else str(begins)[:19].replace("T", " "),
                number(f"{window['rounds']:,}"),
                number(f"{window['mean_reward']:.4g}"),
                number(f"{window['sd_reward']:.3g}"),
            ]
        )
    return Section(
        title="Windows",
        words=[],
        headings=("window", "begins", "rounds", "mean reward", "sd"),
        rows=rows,
    )


def _overview(model: Model) -> str:
    from invariant_bandits.reports import plots

    drawing = page.svg_of(
        plots.overview(model.decomposition, edges=model.moments.edges)
    )
    split = model.decomposition.split_
    name = f"Overview: {split.residual_dim} of {split.dim} dimensions drift"
    caption = (
        "Above: correlations of the features in a few windows, as logged and in the found basis, and the"
        " stable share of each feature. Below: the coefficient along each direction over the windows;"
        " drifting ones are dashed."
    )
    return page.picture(drawing, "overview", name, caption)


def _changes(update: Update) -> Section:
    rows: list[list[Cell]] = []
    for move in values.moves(update):
        factor = _factor(move["unit"])
        before = _with_error(factor, move["before"], move["before_error"])
        now = _with_error(factor, move["now"], move["now_error"])
        mark = Mark("moved", "bad") if move["moved"] else ""
        z = number(f"{move['z']:+.1f}")
        rows.append([move["name"], before, now, z, mark])
    headings = ("feature", "logs ended at", "new rounds", "z", "")
    return Section(
        title="What changed since",
        words=_changes_in_words(update),
        headings=headings,
        rows=rows,
    )


def _changes_in_words(update: Update) -> list[str]:
    """How much was added, whether what showed no drift moved, what drifts, and where rewards went."""
    before = update.before
    after = update.model
    p_value = update.stable_p_value
    more = after.moments.windows - before.moments.windows
    added = "added to the last window"
    if more > 0:
        added = f"{more} window{'s' * (more > 1)} more"
    alarm = "Whether anything moved that did not drift before cannot be known from the new rounds."
    if update.stable_part_moved:
        alarm = f"ALARM: what showed no drift before has moved (p = {p_value:.2g}, level {ALARM_LEVEL:g})."
    elif update.new_drift:
        effects = "; ".join(
            f"{effect.title} {effect.in_words(after.moments.edges)}"
            for effect in update.new_drift
        )
        alarm = f"ALARM: what showed no drift before has moved within the new windows: {effects}."
    elif p_value is not None:
        alarm = f"Nothing says that what showed no drift before has moved (p = {p_value:.2g})."
    (drifts_before, _), (drifts, every) = drifting(before), drifting(after)
    mean_before, mean_now, z = update.reward_shift
    lines = [
        f"{update.new.rounds:,} new rounds, {added}; {update.quality.left_out:,} rounds of the new log were"
        " left out.",
        alarm,
        f"Drifting {'dimensions' if after.arms is None else 'effects'}: {drifts} of {every},"
        f" {'as' if drifts_before == drifts else drifts_before} before.",
        f"Mean reward: {mean_before:.4g} before, {mean_now:.4g} in the new rounds ({z:+.1f} standard"
        " errors).",
    ]
    problems = update.quality.problems
    strange = [reason for reason in problems if reason.startswith("unknown category")]
    if strange:
        lines.append(
            f"The new log has values that the model does not know: {', '.join(strange)}."
        )
    gone = set(before.names) - set(after.names)
    if gone:
        lines.append(f"No longer estimated: {', '.join(sorted(gone))}.")
    lines.append(
        "Coefficient of each feature where the logs ended and in the new rounds, ± one standard error. Of a"
        " drifting one, that is its value in the last window; of any other, that of all windows. z: the"
        " difference in standard errors."
    )
    if any(move.unit != REWARD for move in update.moves):
        lines[-1] += f" {IN_POINTS}"
    return lines
