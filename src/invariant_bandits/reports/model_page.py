"""What a fitted model says about its log, and what an update changed: sections for page and terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
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
from invariant_bandits.logs.features import has_binary_rewards, in_sentence
from invariant_bandits.model.model import Model
from invariant_bandits.model.update import ALARM_LEVEL, Update, drifting
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.alarm import falls_in_words
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.pooled_arms import PooledArms
from invariant_bandits.policies.randomised import unwrapped
from invariant_bandits.reports import page, values
from invariant_bandits.reports.page import (
    WIDTH,
    Cell,
    Columns,
    Mark,
    Section,
    as_page,
    as_text,
    number,
)

if TYPE_CHECKING:
    from invariant_bandits.logs.arms import ArmTable

TEXTS, COLUMNS = page.TEXTS["model"], page.TEXTS["columns"]
GAIN = "{gain:+.3g} [{low:+.3g}, {high:+.3g}]"
MOST_CURVES = 9
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
        finding = TEXTS["dimensions"].format(split=split)
    else:
        finding = _effects_in_words(effect_paths(model), model.arms)
    said = str(TEXTS["headline"].format(finding=finding, model=model))
    return (
        said
        if model.shared_slopes is None
        else f"{in_sentence(model.shared_slopes)} {said}"
    )


def _effects_in_words(effects: list[EffectPath], arms: ArmTable) -> str:
    names = [effect.title for effect in effects if effect.drifts]
    named = (
        f" ({', '.join([*names[:4], *(['…'] if len(names) > 4 else [])])})"
        if names
        else ""
    )
    untested = sum(np.isnan(effect.p_value) for effect in effects)
    rest = f", {untested} have too few clicks to tell" if untested else ""
    drift = f"{len(names)} of {len(effects)} effects drift{named}{rest}"
    return f"{drift}; {len(arms)} arms, {len(arms.active)} of them active"


def sections(
    model: Model, update: Update | None = None, *, pictures: bool = False
) -> Iterator[Section]:
    """Yield everything there is to say, the most important first."""
    policy = unwrapped(model.policy)
    if update is not None:
        yield _changes(update)
    yield Section("Read this first", values.warnings(model))
    if isinstance(policy, AutoISD | PooledArms) and policy.rounds:
        yield Section(
            "What the policy believes now",
            str(policy.explain(model.names)).splitlines(),
        )
    if model.arms is None:
        yield blocks(model, _overview(model) if pictures else "")
        yield _features(model)
    else:
        yield _arms(model, model.arms, pictures)
    yield _effects(model, pictures)
    if isinstance(policy, AutoISD | PooledArms):
        yield _exploration(policy, model.names)
    yield _expected_value(model)
    yield Section("Data quality", model.quality.describe().splitlines())
    yield _windows(model.moments)
    yield Section("Columns", [], ("role", "column", "why"), model.schema.rows())


MOST_UNDETECTED = 12
"""Effects without detected drift of which a terminal shows each; of more it shows the number."""


def _verdict(row: dict[str, Any]) -> Mark:
    """What is said of a block of directions or of an effect."""
    kinds = {"drifts": "bad", "cannot tell": "unsure"}
    return Mark(row["verdict"], kinds.get(row["verdict"], "good"))


def _shown(record: dict[str, Any], unit: str, names: Sequence[str]) -> dict[str, Any]:
    """The record with these of its numbers as people read them, in per cent or points where they are that."""
    factor, _ = DISPLAY[unit]
    return record | {
        name: None if record[name] is None else factor * record[name] for name in names
    }


def _unit(model: Model) -> str:
    """Unit of what the features of rows add to the reward."""
    return POINTS if has_binary_rewards(model.moments) else REWARD


def _in_unit(model: Model, words: str) -> list[str]:
    """The words above a table of feature rows, with the unit of its numbers."""
    return [f"{words} {TEXTS['points']}"] if _unit(model) == POINTS else [words]


def blocks(model: Model, picture: str = "") -> Section:
    """Return the table of all blocks."""
    names = ("drift", "drift_in_reward", "error", "detectable")
    records = [
        _shown(record, _unit(model), names)
        for record in values.blocks(model.decomposition)
    ]

    def p_value(block: dict[str, Any]) -> Mark:
        return number(p_value_words(block["log_p_value"]))

    columns = COLUMNS["blocks"] | {"verdict": _verdict, "p-value": p_value}
    return Section.of_records(
        "Directions", _in_unit(model, TEXTS["blocks"]), columns, records, picture
    )


def _features(model: Model) -> Section:
    def last_window(feature: dict[str, Any]) -> Mark:
        known = feature["last_error"] is not None
        return number(
            "{last_coefficient:+.3g} ± {last_error:.2g}".format(**feature)
            if known
            else "silent"
        )

    def share(feature: dict[str, Any]) -> Mark:
        return number(f"{100.0 * feature['stable_share']:.0f} %")

    columns = COLUMNS["features"] | {"stable share": share, "last window": last_window}
    names = ("coefficient", "error", "last_coefficient", "last_error")
    records = [
        _shown(record, _unit(model), names)
        for record in values.features(model.decomposition)
    ]
    words = _in_unit(model, TEXTS["features"])
    return Section.of_records("Features", words, columns, records)


def _levels(policy: PooledArms, arms: ArmTable) -> Section:
    """The most played of many arms, with their levels about the population."""
    error = np.sqrt(policy.variances)
    plays = np.array([arm.plays for arm in arms.arms])
    rows: list[list[Cell]] = []
    for place in np.argsort(-plays, kind="stable")[:MOST_LEVELS].tolist():
        arm = arms.arms[place]
        level = f"{policy.levels[place]:+.3g} ± {error[place]:.2g}"
        rows.append([arm.label, number(f"{arm.plays:,}"), number(level)])
    unit = "log-odds" if policy.link == "logit" else "units of the reward"
    spread = float(np.sqrt(policy.spread))
    few = int((error > 0.5 * spread).sum())
    words = TEXTS["levels"].format(arms=len(arms), unit=unit, spread=spread, few=few)
    return Section("Arms", [words], ("arm", "plays", "level"), rows)


def _arms(model: Model, arms: ArmTable, pictures: bool) -> Section:
    policy = unwrapped(model.policy)
    if isinstance(policy, PooledArms):
        return _levels(policy, arms)
    mean, error, played = values.arm_rewards(model)
    recent = np.column_stack(values.recent_rewards(mean, error, played)).round(12)
    rows: list[list[Cell]] = []
    for place, (label, plays, first, last, state) in enumerate(arms.rows()):
        known = place < len(recent) and bool(np.isfinite(recent[place, 0]))
        shown = f"{recent[place, 0]:.4g} ± {recent[place, 1]:.2g}" if known else "?"
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
        drawing = page.picture(page.svg_of(figure), "arms", name, TEXTS["arms"])
    headings = ("arm", "", "plays", "first use", "last use", "recent mean reward")
    return Section("Arms", [], headings, rows, drawing)


def _effects(model: Model, pictures: bool) -> Section:
    def p_value(effect: dict[str, Any]) -> Mark:
        tested = not np.isnan(effect["p_value"])
        return number(
            p_value_words(float(np.log(max(effect["p_value"], 1e-300))))
            if tested
            else ""
        )

    def detectable(effect: dict[str, Any]) -> Mark:
        return number(
            "" if np.isnan(effect["p_value"]) else f"{effect['detectable']:.2g}"
        )

    columns: Columns = {} if model.arms is None else {"arm": "{arm}"}
    columns |= COLUMNS["effects"] | {
        "verdict": _verdict,
        "detectable": detectable,
        "p-value": p_value,
    }
    columns["from what to what, when"] = lambda effect: (
        effect["words"] if effect["drifts"] else ""
    )
    names = ("estimate", "error", "drift", "detectable")
    rows = [_shown(row, row["unit"], names) for row in values.effects(model)]
    drawing = ""
    if pictures and model.arms is not None:  # the overview has those of rows
        drifting_effects = sum(row["drifts"] for row in rows)
        axes = model.plot(
            most=min(max(drifting_effects, 3), MOST_CURVES, max(len(rows), 1))
        )
        name = f"{drifting_effects} drifting effects over the windows"
        drawing = page.picture(
            page.svg_of(axes[0].figure), "effects", name, TEXTS["curves"]
        )
    words = [TEXTS["effects"]]
    if model.arms is None:
        words = _in_unit(model, TEXTS["directions"])
    undetected = [row for row in rows if row["verdict"] == NOT_DETECTED]
    if not pictures and len(undetected) > MOST_UNDETECTED:
        rows = [row for row in rows if row["verdict"] != NOT_DETECTED]
        words.append(TEXTS["undetected"].format(count=len(undetected)))
    return Section.of_records("Drift", words, columns, rows, drawing)


def _expected_value(model: Model) -> Section:
    value = model.value
    words = (
        []
        if model.arms is not None
        else [_explained(model.decomposition, model.moments)]
    )
    if value is None:
        words.append(
            "What the policy would have earned was not asked for when fitting."
        )
        return Section("Expected value", words)
    if not value["known"]:
        return Section(
            "Expected value", [*words, *values.sentences([str(value["reason"])])]
        )
    words.append(TEXTS["value"].format(**{"windows": "as many", **value}))
    columns: Columns = COLUMNS["value"] | {
        "gain": lambda line: number(
            "?" if line["gain"] is None else GAIN.format(**line)
        )
    }
    return Section.of_records("Expected value", words, columns, value["lines"])


def _explained(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> str:
    """How much of the variance of rewards within windows fixed coefficients γ explain: Σ 2γᵀc_i − γᵀG_iγ."""
    total = float(moments.reward_square.sum())
    if total <= 0.0:
        return "Rewards are constant within every window: there is nothing to explain."
    gram, cross = moments.gram.sum(axis=0), moments.cross.sum(axis=0)

    def share(coefficients: Array) -> float:
        return (
            float(2.0 * coefficients @ cross - coefficients @ gram @ coefficients)
            / total
        )

    freedom = np.maximum(moments.counts - moments.dim - 1, 0.0)
    noise = float(fit.window_noise_ @ freedom / freedom.sum())
    own = 1.0 - noise * float((moments.counts - 1).sum()) / total
    shares = (own, share(fit.paths_.weighted_mean()[0]), share(fit.component_))
    each, same, stable = (f"{100.0 * max(part, 0.0):.3g} %" for part in shares)
    return str(TEXTS["explained"].format(each=each, same=same, stable=stable))


def _exploration(policy: AutoISD | PooledArms, names: Sequence[str]) -> Section:
    """How AutoISD will explore, whether it can give an alarm, and which falls of arms it would notice."""
    belief = policy.explain(names)
    reason = belief.no_alarm_because
    alarm = f"No alarm can be given: {reason}." if reason else TEXTS["alarm"]
    limits = {None: "as often as they pay", 0.0: "only once the logs are doubted"}
    spent = f"for at most {100.0 * (policy.caution or 0.0):g} % of the believed gain"
    tested = f"are tested {limits.get(policy.caution, spent)}"
    if isinstance(policy, PooledArms):
        tested = "are not tested: there are too many arms"
    words = [TEXTS["explores"].format(tested=tested), alarm]
    if belief.noticeable_levels and not reason:
        noticed = falls_in_words(belief.noticeable_levels)
        words.append(f"{noticed[0].upper()}{noticed[1:]}.")
    return Section("How it will explore", words)


def _windows(moments: WindowedMoments) -> Section:
    def begins(window: dict[str, Any]) -> str:
        return (
            ""
            if window["begins"] is None
            else str(window["begins"])[:19].replace("T", " ")
        )

    columns = COLUMNS["windows"] | {"begins": begins}
    return Section.of_records("Windows", [], columns, values.windows(moments))


def _overview(model: Model) -> str:
    from invariant_bandits.reports import plots

    drawing = page.svg_of(
        plots.overview(model.decomposition, edges=model.moments.edges)
    )
    split = model.decomposition.split_
    name = f"Overview: {split.residual_dim} of {split.dim} dimensions drift"
    return page.picture(drawing, "overview", name, TEXTS["overview"])


def _changes(update: Update) -> Section:
    columns = COLUMNS["moves"] | {
        "": lambda move: Mark("moved", "bad") if move["moved"] else ""
    }
    names = ("before", "before_error", "now", "now_error")
    rows = [_shown(row, row["unit"], names) for row in values.moves(update)]
    return Section.of_records(
        "What changed since", _changes_in_words(update), columns, rows
    )


def _changes_in_words(update: Update) -> list[str]:
    """How much was added, whether what showed no drift moved, what drifts, and where rewards went."""
    before = update.before
    after = update.model
    p_value = update.stable_p_value
    more = after.moments.windows - before.moments.windows
    added = (
        f"{more} window{'s' * (more > 1)} more"
        if more > 0
        else "added to the last window"
    )
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
        TEXTS["added"].format(update=update, added=added),
        alarm,
        f"Drifting {'dimensions' if after.arms is None else 'effects'}: {drifts} of {every},"
        f" {'as' if drifts_before == drifts else drifts_before} before.",
        TEXTS["mean_reward"].format(before=mean_before, now=mean_now, z=z),
    ]
    strange = [
        reason
        for reason in update.quality.problems
        if reason.startswith("unknown category")
    ]
    if strange:
        lines.append(
            f"The new log has values that the model does not know: {', '.join(strange)}."
        )
    gone = set(before.names) - set(after.names)
    if gone:
        lines.append(f"No longer estimated: {', '.join(sorted(gone))}.")
    if any(move.unit != REWARD for move in update.moves):
        return [*lines, f"{TEXTS['moves']} {TEXTS['points']}"]
    return [*lines, TEXTS["moves"]]
