"""Policies by name: what every experiment, study and configuration file can ask to be played.

A contender is plain data, a kind with options: settings can be written down, compared and stored beside results.
Every published policy has ridge 0.1, noise scale 1, norm bound 1 and confidence 1/T, as in the paper.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from invariant_bandits.checks import InputError, one_of
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.experiments.observing import Watched
from invariant_bandits.policies.auto import DEFAULT_EXPLORATION, AutoISD
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.baselines import EpsilonGreedy, Greedy, Uniform
from invariant_bandits.policies.isd import ISDLinTS, ISDLinUCB
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.memory import FOREVER, Discount, Memory, Restart, SlidingWindow
from invariant_bandits.policies.thompson import LinTS
from invariant_bandits.simulation.episodes import Episode
from invariant_bandits.simulation.loop import Maker

SPLITS = ("estimated", "oracle", "known", "published")


@dataclass(frozen=True)
class Contender:
    """A kind of policy with its options, for instance Contender("LinUCB", {"exploration": 0.3})."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def maker(self) -> Maker:
        """Episode -> fresh policy."""
        if ":" in self.kind:
            return _maker_from_module(self.kind, self.options)
        make = KINDS[one_of("policy", self.kind, tuple(KINDS))]
        try:
            return make(**self.options)
        except TypeError as error:
            raise InputError(f"policy {self.kind!r}: {str(error).split('() ', 1)[-1]}") from None


def published_settings(episode: Episode) -> dict[str, Any]:
    """What the paper gives every policy."""
    return {"ridge": 0.1, "noise_scale": 1.0, "norm_bound": 1.0, "confidence": 1.0 / episode.horizon}


def linucb(exploration: float = 1.0, memory: Memory = FOREVER) -> Maker:
    """LinUCB; with another memory it is SW-, D- or Restart-linUCB."""
    return lambda episode: LinUCB(episode.dim, memory=memory, exploration=exploration, **published_settings(episode))


def sw_linucb(window: int | None = None, exploration: float = 1.0) -> Maker:
    """SW-linUCB; a window of None is the horizon, as in the paper."""
    return lambda episode: linucb(exploration, SlidingWindow(window or episode.horizon))(episode)


def d_linucb(discount: float = 0.999, exploration: float = 1.0) -> Maker:
    """D-linUCB, with the paper's discount."""
    return linucb(exploration, Discount(discount))


def restart_linucb(every: int, exploration: float = 1.0) -> Maker:
    """LinUCB that begins afresh every so many rounds."""
    return linucb(exploration, Restart(every))


def warm_linucb(exploration: float = 1.0) -> Maker:
    """LinUCB that has learned every logged round: ridge regression on all logs is where it starts."""

    def make(episode: Episode) -> Policy:
        policy = LinUCB(episode.dim, exploration=exploration, **published_settings(episode))
        for features, reward in zip(episode.logs.features, episode.logs.rewards, strict=True):
            policy.update(features, reward)
        return policy

    return make


def isd_linucb(
    split: str = "estimated", memory: Memory = FOREVER, exploration: float = 1.0, window: int | None = None
) -> Maker:
    """ISD-linUCB (Algorithm 1), by what it knows of the truth.

    "estimated": split and component from the logs; "oracle": the true split, the component estimated; "known": both
    true; "published": both from the logs by the recipe of the ISD framework. `window`: rounds that the residual part
    remembers.
    """
    one_of("split", split, SPLITS)
    if window is not None:
        memory = SlidingWindow(window)

    def make(episode: Episode) -> Policy:
        rest = {"memory": memory, "exploration": exploration, **published_settings(episode)}
        logs = episode.logs
        if split == "known":
            return ISDLinUCB(logs.split, logs.component, **rest)
        if split == "published":
            return _isd_by_published_recipe(episode, rest)
        known = logs.split if split == "oracle" else None
        with unconverged_fits_count():
            return ISDLinUCB.from_history(episode.moments, split=known, **rest)

    return make


def _isd_by_published_recipe(episode: Episode, rest: Mapping[str, Any]) -> Policy:
    fit = InvariantSubspaceDecomposition(recipe="published").fit(episode.logs.features, episode.logs.rewards)
    return ISDLinUCB.from_fit(fit, **rest)


def auto_isd(exploration: float = DEFAULT_EXPLORATION) -> Maker:
    """AutoISD from the logs' moments."""

    def make(episode: Episode) -> Policy:
        with unconverged_fits_count():
            return AutoISD.from_history(episode.moments, confidence=1.0 / episode.horizon, exploration=exploration)

    return make


def unconverged_fits_count() -> warnings.catch_warnings[Any]:
    """A rotation search that has not converged is used like any other: no warning, and nothing is discarded."""
    return warnings.catch_warnings(action="ignore", category=ConvergenceWarning)


def greedy() -> Maker:
    """Ridge regression without exploration."""
    return lambda episode: Greedy(episode.dim, **published_settings(episode))


def epsilon_greedy(epsilon: float = 0.1, seed: int = 0) -> Maker:
    """Ridge regression that now and then plays at random."""
    return lambda episode: EpsilonGreedy(episode.dim, epsilon=epsilon, seed=seed, **published_settings(episode))


def uniform(seed: int = 0) -> Maker:
    """Plays at random and learns nothing."""
    return lambda episode: Uniform(episode.dim, seed=seed)


def lin_ts(exploration: float = 1.0, seed: int = 0) -> Maker:
    """Linear Thompson sampling."""
    return lambda episode: LinTS(episode.dim, exploration=exploration, seed=seed, **published_settings(episode))


def isd_lin_ts(exploration: float = 1.0, seed: int = 0) -> Maker:
    """Thompson sampling in the residual part, split and component from the logs."""

    def make(episode: Episode) -> Policy:
        with unconverged_fits_count():
            return ISDLinTS.from_history(
                episode.moments, exploration=exploration, seed=seed, **published_settings(episode)
            )

    return make


def watched(policy: str, **options: Any) -> Maker:
    """Another contender whose widths are compared with the truth while it plays."""
    maker = Contender(policy, options).maker()

    def make(episode: Episode) -> Any:
        return Watched(maker(episode), episode)

    return make


KINDS: Mapping[str, Callable[..., Maker]] = {
    "LinUCB": linucb,
    "SW-linUCB": sw_linucb,
    "D-linUCB": d_linucb,
    "Restart-linUCB": restart_linucb,
    "LinUCB-warm": warm_linucb,
    "LinTS": lin_ts,
    "Greedy": greedy,
    "epsilon-greedy": epsilon_greedy,
    "Uniform": uniform,
    "ISD-linUCB": isd_linucb,
    "ISD-linTS": isd_lin_ts,
    "AutoISD": auto_isd,
    "watched": watched,
}


def _maker_from_module(kind: str, options: Mapping[str, Any]) -> Maker:
    """A maker of one's own: "module:function", called with the options, returns Episode -> policy."""
    module, _, name = kind.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"policy {kind!r} cannot be imported: {error}") from None
    maker = function(**options)
    if not callable(maker):
        raise InputError(f"policy {kind!r} must return a maker, episode -> policy, got {type(maker).__name__}")
    made: Maker = maker
    return made


LINUCB = "LinUCB"
LINUCB_TUNED = "LinUCB, exploration 0.3"
LINUCB_WARM = "LinUCB, warm on all logs"
GREEDY = "Greedy"
SW_LINUCB = "SW-linUCB, window T"
D_LINUCB = "D-linUCB, 0.999"
ISD_KNOWN = "ISD-linUCB, all known"
ISD_ORACLE = "ISD-linUCB, oracle subspaces"
ISD_ESTIMATED = "ISD-linUCB, estimated"
ISD_PUBLISHED = "ISD-linUCB, published recipe"
AUTO = "AutoISD"

NAMED: Mapping[str, Contender] = {
    LINUCB: Contender("LinUCB"),
    LINUCB_TUNED: Contender("LinUCB", {"exploration": 0.3}),
    LINUCB_WARM: Contender("LinUCB-warm"),
    GREEDY: Contender("Greedy"),
    SW_LINUCB: Contender("SW-linUCB"),
    D_LINUCB: Contender("D-linUCB"),
    ISD_KNOWN: Contender("ISD-linUCB", {"split": "known"}),
    ISD_ORACLE: Contender("ISD-linUCB", {"split": "oracle"}),
    ISD_ESTIMATED: Contender("ISD-linUCB"),
    ISD_PUBLISHED: Contender("ISD-linUCB", {"split": "published"}),
    AUTO: Contender("AutoISD"),
}
