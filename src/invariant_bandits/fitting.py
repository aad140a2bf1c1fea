"""fit_logs: from a log, as it lies there, to a Model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from invariant_bandits.checks import InputError, one_of, probability
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.pruning import prune
from invariant_bandits.logs.reading import Progress, read_moments
from invariant_bandits.logs.schema import Schema, SchemaLike
from invariant_bandits.model import Model
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.isd import ISDLinTS, ISDLinUCB
from invariant_bandits.policies.linear import LinearPolicy, LinUCB
from invariant_bandits.policies.thompson import LinTS

AUTO = "auto-isd"
Linear = TypeVar("Linear", bound=LinearPolicy)


def fit_logs(
    source: Any,
    schema: SchemaLike = None,
    *,
    policy: str = AUTO,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | FeatureMap | None = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    confidence: float = 0.01,
    exploration: float | None = None,
    progress: Progress | None = None,
) -> Model:
    """Read a log and make a policy of it; see `read_moments` for how logs are read and cut into windows.

    policy: one of POLICIES. Windows with too few rounds join a neighbour, features that some window cannot estimate
    are left out; the model says so. confidence: η, the probability of failure; exploration: factor on the widths, the
    policy's own default if not given.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(4000, 2))
    >>> reward = x[:, 0] + np.repeat([1.0, -1.0, 0.0, 2.0], 1000) * x[:, 1] + rng.normal(size=4000)
    >>> model = ib.fit_logs(pa.table({"reward": reward, "x0": x[:, 0], "x1": x[:, 1]}))
    >>> model
    Model(auto-isd, 2 features, 4,000 logged rounds)
    >>> model.decomposition.split_
    Split(invariant_dim=1, residual_dim=1)
    >>> model.select({"x0": [-1.0, 1.0], "x1": [0.0, 0.0]})
    1
    """
    one_of("policy", policy, tuple(POLICIES))
    probability("confidence", confidence)
    options = None if isinstance(features, FeatureMap) else features or FeatureOptions()
    raw = None if options is None else replace(options, standardise="none", drop_collinear=False)
    read = read_moments(
        source,
        schema,
        windows=windows,
        every=every,
        edges=edges,
        features=features if raw is None else raw,
        engine=engine,
        address=address,
        strict=strict,
        progress=progress,
    )
    usable = prune(read.moments, read.feature_map, options)
    moments, feature_map = usable.moments, usable.feature_map
    given: dict[str, Any] = {"confidence": confidence}
    if exploration is not None:
        given["exploration"] = exploration
    baseline = 0.0
    if policy != AUTO:  # the others have no intercept: features and rewards count from the means of the log
        baseline = float(moments.counts @ moments.reward_mean) / moments.rounds
        mean = moments.counts @ moments.feature_mean / moments.rounds
        moments = moments.rescaled(np.arange(moments.dim), mean, np.ones(moments.dim))
        feature_map = feature_map.shifted(mean)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # the findings of the fit say it
        fit = InvariantSubspaceDecomposition(feature_names=feature_map.names).fit(moments)
        made = POLICIES[policy](moments, fit, baseline, given)
    return Model(
        policy=made,
        policy_name=policy,
        feature_map=feature_map,
        schema=read.schema,
        moments=moments,
        quality=read.quality,
        baseline=baseline,
        dropped=usable.dropped,
        notes=(*_action_note(read.schema), *usable.notes),
        fit=fit,
    )


def warm_started(kind: type[Linear], moments: WindowedMoments, baseline: float, **settings: Any) -> Linear:
    """A linear policy that has learned every logged round, rewards less `baseline`, from the moments alone.

    A = λI + Σφφᵀ and b = Σφ(r − baseline) are sums, so the state is that after learning row by row, up to rounding.
    """
    cold = kind(moments.dim, **settings)
    gram = moments.second_moment() + cold.ridge * np.eye(moments.dim)
    weights = moments.counts[:, None] * moments.feature_mean
    pull = moments.cross.sum(axis=0) + weights.T @ (moments.reward_mean - baseline)
    try:
        root = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        raise InputError(
            "features must be of similar size: their Gram matrix is singular in double precision"
        ) from None
    counters = np.array([moments.rounds, moments.rounds], dtype=np.int64)
    factor = np.column_stack([root.T, np.linalg.solve(root, pull)])
    return kind.rebuilt(cold.settings(), {"counters": counters, "memory.factor": factor})


def _action_note(schema: Schema) -> list[str]:
    """A log of contexts and labels of actions teaches nothing about the choice unless the label is a feature."""
    if schema.action is None or schema.has_offered:
        return []
    return [
        f"the action (column {schema.action!r}) is not among the features: if they describe the context only, no action"
        f" can be preferred to another; to give every action coefficients of its own: --action none --one-hot"
        f" {schema.action} --interactions CONTEXT:{schema.action}"
    ]


def _noise(fit: InvariantSubspaceDecomposition) -> dict[str, Any]:
    return {"noise_scale": max(fit.noise_scale_, 1e-12)}


def _auto(moments: WindowedMoments, fit: InvariantSubspaceDecomposition, given: dict[str, Any]) -> AutoISD:
    """AutoISD.from_history, with the decomposition that is there already."""
    return AutoISD(DriftPrior.from_moments(moments, fit.basis_), **given)


def _isd_linucb(moments: WindowedMoments, fit: InvariantSubspaceDecomposition, given: dict[str, Any]) -> ISDLinUCB:
    """ISDLinUCB.from_history, with the decomposition that is there already."""
    facts = {"logged_rounds": moments.rounds, "min_eigenvalue": fit.min_eigenvalue_}
    return ISDLinUCB.from_fit(fit, **facts, **given)


Maker = Callable[[WindowedMoments, InvariantSubspaceDecomposition, float, dict[str, Any]], Policy]
POLICIES: dict[str, Maker] = {
    AUTO: lambda moments, fit, baseline, given: _auto(moments, fit, given),
    "isd-linucb": lambda moments, fit, baseline, given: _isd_linucb(moments, fit, given),
    "isd-lints": lambda moments, fit, baseline, given: ISDLinTS.from_fit(fit, **given),
    "linucb": lambda moments, fit, baseline, given: warm_started(LinUCB, moments, baseline, **_noise(fit), **given),
    "lints": lambda moments, fit, baseline, given: warm_started(LinTS, moments, baseline, **_noise(fit), **given),
    "linucb-cold": lambda moments, fit, baseline, given: LinUCB(moments.dim, **_noise(fit), **given),
}
"""The policies by name: those with isd and auto-isd keep what the logs teach, linucb and lints have learned every
logged round, linucb-cold begins with nothing."""
