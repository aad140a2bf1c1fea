"""AutoISD with one arm more or less: every filter's belief is extended, or narrowed, exactly.

Two priors of a member, of A arms and of A + 1, say how the new arm's coefficients follow from the others': they are
normal with a mean linear in them. The same line, applied to what the filter believes now, is what it should believe of
the new arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.policies.arm_hypotheses import members_of
from invariant_bandits.policies.hypotheses import Member

Auto = TypeVar("Auto", bound=Any)
NEGLIGIBLE = 1e-10


def rebuilt_with_arm(policy: Auto, features: Sequence[float] | None) -> Auto:
    """A copy of AutoISD with one arm more."""
    before = _arms_of(policy)
    prior = before.with_arm(features)
    starts = members_of(prior, intercept=policy.intercept)
    arrays = policy.arrays()
    if len(starts) != policy.members:
        raise InputError("an arm can be added to the default members only, this policy has others")
    place = before.layout.arms * before.layout.own
    new = np.arange(place, place + before.layout.own)
    old = np.delete(np.arange(prior.layout.dim + policy.intercept), new)
    grown = [_extended(*one, new, old) for one in zip(starts, arrays["means"], arrays["covariances"], strict=True)]
    process = np.stack([one.process for one in starts])
    process[:, old] = arrays["process"]
    online = np.zeros((2, len(new) + len(old) + 1, len(new) + len(old) + 1))
    at = np.append(old, len(new) + len(old))
    online[np.ix_(np.arange(2), at, at)] = arrays["online"]
    return _rebuilt(
        policy,
        prior,
        {
            "means": np.stack([mean for mean, _ in grown]),
            "covariances": np.stack([covariance for _, covariance in grown]),
            "process": process,
            "online": online,
        },
    )


def rebuilt_without_arm(policy: Auto, arm: int) -> Auto:
    """A copy of AutoISD without an arm."""
    before = _arms_of(policy)
    prior, arrays = before.without_arm(arm), policy.arrays()
    kept = before.layout.without(arm)
    if policy.intercept:
        kept = np.append(kept, before.layout.dim)
    at = np.append(kept, before.layout.dim + policy.intercept)
    return _rebuilt(
        policy,
        prior,
        {
            "means": arrays["means"][:, kept],
            "covariances": arrays["covariances"][:, kept][:, :, kept],
            "process": arrays["process"][:, kept],
            "online": arrays["online"][:, at][:, :, at],
        },
    )


def _arms_of(policy: Any) -> ArmPrior:
    if not isinstance(policy.prior, ArmPrior):
        raise InputError("this policy knows no labelled arms: it was not started with from_arms")
    return policy.prior


def _extended(start: Member, mean: Array, lower: Array, new: Array, old: Array) -> tuple[Array, Array]:
    """Mean and covariance of a filter with the new coordinates; `start` is what it would start from with them."""
    P = np.tril(lower) + np.tril(lower, -1).T
    known = start.covariance[np.ix_(old, old)]
    across = start.covariance[np.ix_(new, old)]
    line = across @ np.linalg.pinv(known, rcond=NEGLIGIBLE, hermitian=True)
    rest = start.covariance[np.ix_(new, new)] - line @ across.T
    d = len(new) + len(old)
    center, spread = np.empty(d), np.empty((d, d))
    center[old], center[new] = mean, start.mean[new] + line @ (mean - start.mean[old])
    spread[np.ix_(old, old)] = P
    spread[np.ix_(new, old)] = line @ P
    spread[np.ix_(old, new)] = (line @ P).T
    spread[np.ix_(new, new)] = 0.5 * (rest + rest.T) + line @ P @ line.T
    return center, spread


def _rebuilt(policy: Auto, prior: ArmPrior, changed: dict[str, Array]) -> Auto:
    """The policy with another prior and some other arrays."""
    from invariant_bandits.policies.auto_storage import prior_parts

    numbers, own = prior_parts(prior)
    arrays = {**policy.arrays(), **own, **{name: np.ascontiguousarray(one) for name, one in changed.items()}}
    for name in ("blend", "noise_now"):
        del arrays[name]
    result: Auto = type(policy).rebuilt({**policy.settings(), "prior": numbers}, arrays)
    return result
