"""The pictures of docs/method/autoisd.md, drawn from the real policy on simulated logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy import stats

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.plotting import PATH_COLOURS, theme
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.constants import HYPOTHESES, TRUST
from invariant_bandits.policies.mixture import trust
from invariant_bandits.simulation.episodes import KnownEpisode
from invariant_bandits.simulation.stress_worlds import FixedArms, StressEpisodes

SEED = 20261225
WIDTH, HEIGHT = 7.4, 2.5
SHOWN = (-1.2, 3.2)
"""Coefficients that the picture of the model shows."""
WINDOWS, ROUNDS = 12, 60
CAUTIONS = (None, 0.0)
PLAYS, VALUES = (2000, 500, 100, 30), (0.7, 0.5, 0.6, 0.0)
"""Logged rounds and values of the arms among which a new one is offered."""


def _windows(paths: Array) -> tuple[WindowedMoments, DriftPrior]:
    """Logs of two features whose coefficients in every window are `paths` (m, 2), and what they teach."""
    rng = np.random.default_rng(SEED)
    features = rng.normal(size=(len(paths) * ROUNDS, 2))
    rewards = (features * np.repeat(paths, ROUNDS, axis=0)).sum(axis=1) + rng.normal(
        size=len(features)
    )
    moments = WindowedMoments.from_arrays(features, rewards, windows=len(paths))
    return moments, DriftPrior.from_moments(moments, np.eye(2))


def _estimates(moments: WindowedMoments, direction: int) -> tuple[Array, Array]:
    """Estimates (m,) of a coefficient in every window, and their standard errors."""
    inverse = np.linalg.inv(moments.gram)
    estimates = np.einsum("mij,mj->mi", inverse, moments.cross)
    return estimates[:, direction], np.sqrt(inverse[:, direction, direction])


def _play(
    policy: AutoISD, episode: KnownEpisode, note: Callable[[AutoISD, Array], Any]
) -> list[Any]:
    """What `note` returns in every round before the policy decides."""
    notes = []
    for offered, rewards in zip(episode.offered, episode.rewards, strict=True):
        notes.append(note(policy, offered))
        action = policy.select(offered)
        policy.update(offered[action], float(rewards[action]))
    return notes


def _panels(count: int, **options: Any) -> tuple[Figure, Any]:
    figure = plt.figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.subplots(1, count, **options)


def draw_model(theme_name: str) -> Figure:
    """Coefficients of the windows along a still and a drifting direction, and the prior N(μ, ω)."""
    paths = np.column_stack(
        [
            np.full(WINDOWS, 1.0),
            1.0 + 0.6 * np.random.default_rng(3).normal(size=WINDOWS),
        ]
    )
    moments, prior = _windows(paths)
    with theme(theme_name) as colours:
        figure, axes = _panels(2, sharey=True)
        words = {"stable": "a still direction", "varies": "a drifting direction"}
        for j, (axis, name) in enumerate(zip(axes, words, strict=True)):
            estimates, errors = _estimates(moments, j)
            colour, window = colours[name], np.arange(1, WINDOWS + 1)
            axis.errorbar(
                window, estimates, 2.0 * errors, fmt="o", ms=4, lw=1.0, color=colour
            )
            axis.axhline(prior.mean[j], color=colours["ink"], lw=0.8, ls="--")
            spread = float(np.sqrt(prior.drift[j] + prior.mean_covariance[j, j]))
            level = np.linspace(*SHOWN, 400)
            density = stats.norm.pdf(level, prior.mean[j], spread)
            bell = WINDOWS + 1.0 + 2.5 * density / density.max()
            axis.fill_betweenx(
                level, WINDOWS + 1.0, bell, color=colour, alpha=0.35, lw=0
            )
            axis.set_ylim(*SHOWN)
            axis.set_title(f"{words[name]}: ω = {float(prior.drift[j]):.2f}")
            axis.set_xticks([1, 4, 8, 12])
            axis.set_xlabel("window of the logs, then the prior")
        axes[0].set_ylabel("coefficient ± 2 s.e.")
    return figure


@cache
def _weights(broken: float) -> dict[str, Array]:
    """Weights of the hypotheses over 300 rounds."""
    episode = StressEpisodes(broken=broken).draw(300, np.random.default_rng(SEED))
    policy = AutoISD.from_history(episode.moments, horizon=300)
    rows = _play(policy, episode, lambda policy, _: policy.mixture.hypothesis_weights())
    return {name: np.array([row[name] for row in rows]) for name in HYPOTHESES}


def draw_hypotheses(theme_name: str) -> Figure:
    """Weights of the four hypotheses where the logs hold and where they do not."""
    with theme(theme_name):
        figure, axes = _panels(2, sharey=True)
        for axis, (title, broken) in zip(
            axes,
            (("drift goes on as in the logs", 0.0), ("invariance is broken", 1.0)),
            strict=True,
        ):
            for colour, (name, weights) in zip(
                PATH_COLOURS[theme_name], _weights(broken).items(), strict=False
            ):
                axis.plot(
                    np.arange(len(weights)), weights, color=colour, lw=1.6, label=name
                )
            axis.set_title(title)
            axis.set_xlabel("round")
            axis.set_xscale("symlog", linthresh=10)
            axis.set_xlim(0, 300)
            axis.set_xticks(
                [0, 5, 10, 30, 100, 300], ["0", "5", "10", "30", "100", "300"]
            )
            axis.minorticks_off()
        axes[0].set_ylabel("weight")
        axes[0].legend(frameon=False, fontsize=8, loc="center right")
    return figure


def draw_trust(theme_name: str) -> Figure:
    """η by the ratio of signal and noise."""
    prior = replace(_windows(np.ones((WINDOWS, 2)))[1], drift_signal=0.0)
    ratios = np.geomspace(0.1, 3.0, 200)
    values = [
        trust(replace(prior, signal_variance=r * prior.noise_variance))
        for r in ratios.tolist()
    ]
    with theme(theme_name) as colours:
        figure, axis = _panels(1)
        axis.plot(ratios, values, color=colours["stable"], lw=1.8)
        axis.axhline(TRUST.least, color=colours["ink"], lw=0.8, ls=":")
        axis.set_xscale("log")
        axis.set_xticks([0.1, 0.3, 1.0, 3.0], ["0.1", "0.3", "1", "3"])
        axis.minorticks_off()
        axis.set_ylim(0.0, 1.05)
        axis.set_xlabel("signal variance / noise variance of the logs")
        axis.set_ylabel("trust η")
    return figure


def draw_persistence(theme_name: str) -> Figure:
    """A walk and fresh draws over the windows: their average, and where the filters start."""
    rng = np.random.default_rng(11)
    walk = np.cumsum(0.35 * np.abs(rng.normal(size=WINDOWS)))
    moments, prior = _windows(np.column_stack([rng.permutation(walk), walk]))
    start, spread = prior.where_logs_ended(prior.pooled, prior.pooled_covariance)
    window = np.arange(1, WINDOWS + 1)
    with theme(theme_name) as colours:
        figure, axes = _panels(2, sharey=True)
        for j, axis in enumerate(axes):
            estimates, errors = _estimates(moments, j)
            axis.errorbar(
                window,
                estimates,
                2.0 * errors,
                fmt="o",
                ms=4,
                lw=1.0,
                color=colours["varies"],
            )
            axis.axhline(
                prior.pooled[j],
                color=colours["ink"],
                lw=0.8,
                ls="--",
                label="average of the logs",
            )
            deviation = 2.0 * float(np.sqrt(spread[j, j]))
            look: Mapping[str, Any] = {
                "fmt": "s",
                "ms": 6,
                "color": colours["stable"],
                "label": "start",
            }
            axis.errorbar([WINDOWS + 1.5], [start[j]], [deviation], **look)
            axis.set_title(f"probability of persistence {prior.persistence[j]:.2f}")
            axis.set_xticks([1, 4, 8, 12])
            axis.set_xlabel("window of the logs")
        axes[0].set_ylabel("coefficient ± 2 s.e.")
        axes[1].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def draw_choice(theme_name: str) -> Figure:
    """Means of five arms and what the logs leave open, one of them new."""
    rng = np.random.default_rng(SEED)
    arms = np.repeat(np.arange(len(PLAYS)), PLAYS)
    rewards = np.array(VALUES)[arms] + rng.normal(size=len(arms))
    windows = np.concatenate([np.arange(count) * 8 // count for count in PLAYS])
    statistics = ArmStatistics.from_rounds(
        np.ones((len(arms), 1)), arms, rewards, windows=windows
    )
    policy = AutoISD.from_arms(statistics).with_arm()
    offered = np.eye(policy.dim)
    mean = policy.scores(offered).mean
    open_ = np.sqrt(np.diagonal(policy.mixture.filters.covariances[0])[: policy.dim])
    chosen = policy.select(offered)
    names = [f"{count:,} rounds" for count in PLAYS] + ["new"]
    with theme(theme_name) as colours:
        figure, axis = _panels(1)
        axis.axvspan(
            chosen - 0.4, chosen + 0.4, color=colours["faint"], alpha=0.5, lw=0
        )
        axis.vlines(
            range(policy.dim), mean, mean + open_, color=colours["varies"], lw=3.0
        )
        axis.plot(range(policy.dim), mean, "o", color=colours["stable"], label="mean")
        axis.plot(
            [], [], color=colours["varies"], lw=3.0, label="what the logs leave open"
        )
        axis.set_xticks(range(policy.dim), names)
        axis.set_xlabel("arm, by its rounds in the logs (shaded: the choice)")
        axis.set_ylabel("expected reward")
        axis.legend(frameon=False, fontsize=8, loc="upper center")
    return figure


@cache
def _reasons(caution: float | None) -> tuple[Array, Array]:
    """Arms (T,) that were played, and whether each was a test."""
    episode = FixedArms(5, changed=0.5).draw(600, np.random.default_rng(SEED))
    policy = AutoISD.from_history(episode.moments, horizon=600, caution=caution)
    notes = _play(
        policy,
        episode,
        lambda policy, offered: (policy.select(offered), policy.why(offered)),
    )
    return np.array([arm for arm, _ in notes]), np.array(
        [reason == "test" for _, reason in notes]
    )


def draw_tests(theme_name: str) -> Figure:
    """Which arm is played in every round, and which rounds are tests, by caution."""
    episode = FixedArms(5, changed=0.5).draw(600, np.random.default_rng(SEED))
    best = int(episode.means[0].argmax())
    with theme(theme_name) as colours:
        figure, axes = _panels(len(CAUTIONS), sharey=True)
        for axis, caution in zip(axes, CAUTIONS, strict=True):
            arms, tests = _reasons(caution)
            rounds = np.arange(len(arms))
            axis.axhspan(
                best + 0.55, best + 1.45, color=colours["faint"], alpha=0.5, lw=0
            )
            axis.plot(
                rounds[~tests],
                arms[~tests] + 1,
                "|",
                ms=7,
                color=colours["stable"],
                label="no test",
            )
            axis.plot(
                rounds[tests],
                arms[tests] + 1,
                "|",
                ms=10,
                color=colours["varies"],
                label="test",
            )
            axis.set_title(
                f"caution {caution if caution is None else int(caution)}: {int(tests.sum())} tests"
            )
            axis.set_yticks(range(1, 6))
            axis.set_xlabel("round")
        axes[0].set_ylabel("arm (shaded: the best)")
        axes[1].legend(frameon=False, fontsize=8, loc="center right")
    return figure


@cache
def _evidence(broken: float) -> Array:
    """Log evidence (T,) before every round."""
    episode = StressEpisodes(broken=broken).draw(1000, np.random.default_rng(SEED + 1))
    policy = AutoISD.from_history(episode.moments, horizon=1000)
    return np.array(_play(policy, episode, lambda policy, _: policy.log_evidence))


def draw_alarm(theme_name: str) -> Figure:
    """Log evidence against invariance where it holds and where it is broken, and the limit."""
    with theme(theme_name) as colours:
        figure, axis = _panels(1)
        for name, broken, label in (
            ("stable", 0.0, "invariance holds"),
            ("varies", 0.5, "broken by 0.5"),
        ):
            axis.plot(_evidence(broken), color=colours[name], lw=1.6, label=label)
        limit = float(np.log(100.0))
        axis.axhline(limit, color=colours["ink"], lw=0.8, ls="--")
        axis.text(
            995, limit + 1.0, "alarm: log(1/0.01)", ha="right", va="bottom", fontsize=8
        )
        axis.set_xlim(0, 1000)
        axis.set_xlabel("round")
        axis.set_ylabel("log evidence")
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


PICTURES: Mapping[str, Callable[[str], Figure]] = {
    "model": draw_model,
    "hypotheses": draw_hypotheses,
    "trust": draw_trust,
    "persistence": draw_persistence,
    "choice": draw_choice,
    "tests": draw_tests,
    "alarm": draw_alarm,
}
