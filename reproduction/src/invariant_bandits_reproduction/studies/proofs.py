"""What can be proved of the mixture and of posterior sampling, measured: the numbers and the picture of
docs/method/proofs.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.checks import Array
from invariant_bandits.plotting import PATH_COLOURS, theme
from invariant_bandits.policies import mixture_kernels as kernels
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.constants import LEARNING
from invariant_bandits.simulation.stress_worlds import StressEpisodes

SEED = 20261126
FACTORS = (1 / 16, 1 / 4, 1 / 2, 2.0, 4.0, 16.0)
"""True variances of the coefficients over those that the prior assumes."""
ACTIONS, NOISE = 5, 1.0
HORIZONS = (50, 100, 200, 400)
"""Rounds after which the regret of posterior sampling is drawn."""
SHAPE: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4.5}
"""How measured values are drawn."""


# -- the mixture and its members --


@dataclass(frozen=True)
class PredictionLosses:
    """Logarithmic losses of T rounds, in nats.

    mixture (T,); members (T, C), NaN where a member rested; weights (C,): prior ones; trust η and share α of
    the mixture; weight_error: how far the weights were from those that the losses give.
    """

    mixture: Array
    members: Array
    weights: Array
    trust: float
    share: float
    weight_error: float

    def excess(self) -> Array:
        """How far the mixture is behind each member after each round (T, C), rounds of rest left out."""
        return np.asarray(
            np.cumsum(np.nan_to_num(self.mixture[:, None] - self.members), axis=0)
        )

    def bound(self) -> Array:
        """What the excess cannot pass (T, C): (log 1/w + T·log 1/(1 − α))/η."""
        rounds = np.arange(1, len(self.mixture) + 1)
        shared = -rounds * np.log1p(-self.share)
        return np.asarray((shared[:, None] - np.log(self.weights)) / self.trust)


def _member_losses(filters: Any, features: Array, reward: float) -> Array:
    """−log of Student's t of every member (C,), up to a constant of all, as its weight counts it."""
    freedom = filters.numbers[kernels.FREEDOM]
    z = features @ filters.basis
    z = np.append(z, 1.0)[: filters.means.shape[1]]
    lower = np.tril(filters.covariances)
    half = np.einsum("i,cij,j->c", z, lower, z)
    variance = 2.0 * half - np.einsum("cii,i->c", lower, z**2) + filters.noise
    furthest = kernels.OUTLIER * np.sqrt(variance)
    error = np.clip(reward - filters.means @ z, -furthest, furthest)
    return np.asarray(
        0.5
        * (np.log(variance) + (freedom + 1.0) * np.log1p(error**2 / variance / freedom))
    )


def prediction_losses(
    policy: AutoISD, offered: Array, rewards: Array
) -> PredictionLosses:
    """Play rounds, features (T, K, p) and rewards (T, K), and note what mixture and members lost."""
    filters = policy.mixture.filters
    trust, share = (
        float(filters.numbers[position]) for position in (kernels.TRUST, kernels.SHARE)
    )
    prior = filters.prior_weights.copy()
    mixture = []
    members = []
    off = 0.0
    for features, gains in zip(offered, rewards, strict=True):
        action = policy.select(features)
        before = filters.weights.copy()
        losses = _member_losses(filters, features[action], gains[action])
        awake = (policy.rounds % LEARNING.rest == 0) | (before >= LEARNING.parked)
        awake[policy.mixture.reference] = True
        policy.update(features[action], gains[action])
        least = losses[awake].min()
        density = np.where(awake, np.exp(least - losses), 0.0)
        part = before[awake].sum()
        mixture.append(least - np.log(before @ density / part))
        members.append(np.where(awake, losses, np.nan))
        tempered = np.where(awake, density**trust, before @ density**trust / part)
        after = (1.0 - share) * before * tempered / (before @ tempered) + share * prior
        off = max(off, float(np.abs(after - filters.weights).max()))
    return PredictionLosses(
        mixture=np.array(mixture),
        members=np.array(members),
        weights=prior,
        trust=trust,
        share=share,
        weight_error=off,
    )


def broken_world(
    seed: int = SEED, horizon: int = 1000, **world: Any
) -> PredictionLosses:
    """Losses of AutoISD where the stable part jumps before the first round; world: other settings."""
    episode = StressEpisodes(**({"broken": 1.0} | world)).draw(
        horizon, np.random.default_rng(seed)
    )
    return prediction_losses(
        AutoISD.from_history(episode.moments), episode.offered, episode.rewards
    )


# -- posterior sampling --


def effective_dimension(variances: Array, rounds: float | Array) -> Array:
    """Σ_j log(1 + T·ω_j/σ²) for coefficients of prior variances ω (p,) and features of at most 1."""
    return np.asarray(
        np.log1p(np.multiply.outer(rounds, variances) / NOISE**2).sum(axis=-1)
    )


def regret_bound(variances: Array, rounds: int, actions: int = ACTIONS) -> float:
    """√(2T·log K · s/log(1 + s/σ²) · effective dimension), s = Σω: the largest prior variance of a mean."""
    largest = float(np.sum(variances))
    price = largest / np.log1p(largest / NOISE**2)
    return float(
        np.sqrt(
            2.0
            * rounds
            * np.log(actions)
            * price
            * effective_dimension(variances, rounds)
        )
    )


@dataclass(frozen=True)
class Sampled:
    """Runs of posterior sampling: regret (R,) at the end, and log losses (R,) of its predictions."""

    regret: Array
    losses: Array
    information: Array


def posterior_sampling(
    variances: Array, rounds: int, runs: int, seed: int = SEED, factor: float = 1.0
) -> Sampled:
    """Play coefficients θ ~ N(0, factor·ω) with the exact posterior of the prior N(0, ω), all runs at once.

    K actions per round, features uniform from −1 to 1, Gaussian noise. The action is the best for one draw of
    the posterior. `information` (R,) is Σ log(1 + φᵀPφ/σ²).
    """
    rng, p = np.random.default_rng(seed), len(variances)
    theta = rng.standard_normal((runs, p)) * np.sqrt(factor * variances)
    mean, P = np.zeros((runs, p)), np.tile(np.diag(variances), (runs, 1, 1))
    regret = np.zeros(runs)
    losses = np.zeros(runs)
    information = np.zeros(runs)
    each = np.arange(runs)
    for _ in range(rounds):
        features = rng.uniform(-1.0, 1.0, (runs, ACTIONS, p))
        roots = np.linalg.cholesky(P + 1e-12 * np.eye(p))
        drawn = mean + np.einsum("rij,rj->ri", roots, rng.standard_normal((runs, p)))
        means = np.einsum("rkp,rp->rk", features, theta)
        action = np.einsum("rkp,rp->rk", features, drawn).argmax(axis=1)
        regret += means.max(axis=1) - means[each, action]
        chosen = features[each, action]
        error = (
            means[each, action]
            + NOISE * rng.standard_normal(runs)
            - (chosen * mean).sum(axis=1)
        )
        g = np.einsum("rij,rj->ri", P, chosen)
        spread = (g * chosen).sum(axis=1)
        S = spread + NOISE**2
        losses += 0.5 * (np.log(2.0 * np.pi * S) + error**2 / S)
        information += np.log1p(spread / NOISE**2)
        mean += g * (error / S)[:, None]
        P -= g[:, :, None] * g[:, None, :] / S[:, None, None]
    return Sampled(regret, losses, information)


def with_drift(dim: int, drifting: int) -> Array:
    """Prior variances (p,): 1 along so many directions, 1e-4, what good logs leave open, along the rest."""
    return np.where(np.arange(dim) < drifting, 1.0, 1e-4)


# -- a wrong prior --


def cost_of_factor(factor: float, drifting: int) -> float:
    """½·d·(c − 1 − log c): what a prior of variances that are c times too small costs at most, in nats."""
    return 0.5 * drifting * (factor - 1.0 - float(np.log(factor)))


def measured_cost(
    factor: float, drifting: int, rounds: int, runs: int, seed: int = SEED
) -> tuple[float, float]:
    """What it costs in so many rounds with random features, and the standard error of that: log loss with the
    wrong prior less that with the right one, on the same rounds.
    """
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((runs, drifting)) * np.sqrt(factor)
    features = rng.uniform(-1.0, 1.0, (runs, rounds, drifting))
    rewards = np.einsum("rtp,rp->rt", features, theta) + NOISE * rng.standard_normal(
        (runs, rounds)
    )
    gram = np.einsum("rti,rtj->rij", features, features) / NOISE**2
    cross = np.einsum("rti,rt->ri", features, rewards) / NOISE**2

    def evidence(variance: float) -> Array:
        precision = gram + np.eye(drifting) / variance
        solved = np.linalg.solve(precision, cross[..., None])[..., 0]
        volume = np.linalg.slogdet(precision)[1] + drifting * np.log(variance)
        return np.asarray(0.5 * (cross * solved).sum(axis=1) - 0.5 * volume)

    difference = evidence(factor) - evidence(1.0)
    return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(runs))


# -- the picture --


def draw(theme_name: str) -> Figure:
    """Excess of the mixture over its members; regret by effective dimension; what a wrong prior costs."""
    losses = broken_world()
    excess, bound = losses.excess(), losses.bound()
    with theme(theme_name) as colours:
        blue, orange, green = PATH_COLOURS[theme_name][:3]
        figure = plt.figure(figsize=(9.6, 3.1), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        left.plot(np.maximum(excess / bound, -2.0), color=blue, lw=0.7, alpha=0.7)
        left.axhline(1.0, color=orange, lw=1.6, ls="--")
        left.set(
            xlabel="round",
            ylabel="nats behind a member / bound",
            title="mixture and its members",
        )
        left.set_ylim(-1.9, 1.2)
        for drifting, colour in ((1, blue), (2, orange), (4, green)):
            for dim, marker in ((4, "o"), (8, "s"), (16, "^")):
                variances = with_drift(dim, drifting)
                bounds = [regret_bound(variances, rounds) for rounds in HORIZONS]
                regret = [
                    posterior_sampling(variances, rounds, 60).regret.mean()
                    for rounds in HORIZONS
                ]
                middle.plot(bounds, regret, marker=marker, color=colour, lw=0.8, ms=4.5)
        middle.axline((40.0, 40.0), slope=1.0, color=colours["ink"], lw=1.2, ls="--")
        middle.set(xscale="log", yscale="log", xlabel="bound", ylabel="Bayesian regret")
        middle.set(
            xlim=(25, 330), ylim=(2.5, 50), title="regret after 50 to 400 rounds"
        )
        middle.set_xticks((30, 100, 300), ("30", "100", "300"))
        middle.set_yticks((3, 10, 30), ("3", "10", "30"))
        middle.minorticks_off()
        for drifting, colour in ((1, blue), (3, orange)):
            measured = [measured_cost(c, drifting, 300, 4000) for c in FACTORS]
            grid = np.geomspace(1 / 16, 16.0, 100)
            right.plot(
                grid, [cost_of_factor(c, drifting) for c in grid], color=colour, lw=1.2
            )
            values, errors = np.array(measured).T
            right.errorbar(
                FACTORS,
                values,
                2.0 * errors,
                color=colour,
                label=f"{drifting} drifting",
                **SHAPE,
            )
        right.set(
            xscale="log",
            yscale="log",
            xlabel="true variance / assumed",
            ylabel="nats, 300 rounds",
        )
        right.set(title="price of a wrong prior; line: limit")
        right.legend(frameon=False, fontsize=7.5, loc="upper center")
    return figure
