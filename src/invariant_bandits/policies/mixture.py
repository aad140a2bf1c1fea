"""FilterMixture: Kalman filters over the coefficients, weighed by how well they predicted so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.drift_prior import (
    LARGEST_MEAN,
    LARGEST_VARIANCE,
    LEAST_NOISE,
    DriftPrior,
)
from invariant_bandits.policies import mixture_kernels
from invariant_bandits.policies.hypotheses import HYPOTHESES, Member, trust
from invariant_bandits.storage import ArraySpec

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature
STUDENT_FREEDOM = 5.0
NEGLIGIBLE = 1e-10
STATE = (
    *("means", "covariances", "process", "weights", "prior_weights", "noise", "trusts_logs", "online"),
    "recent",
)
"""Parts of the buffer that rounds change, or that differ between mixtures of one prior."""
STATE_SPECS: Mapping[str, ArraySpec] = {
    "hypothesis_index": ArraySpec(("C",), "int64", 0, len(HYPOTHESES) - 1),
    "means": ArraySpec(("C", "d"), least=-LARGEST_MEAN, most=LARGEST_MEAN),
    "covariances": ArraySpec(("C", "d", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE),
    "process": ArraySpec(("C", "d"), least=0.0, most=LARGEST_VARIANCE),
    "weights": ArraySpec(("C",), least=0.0, most=1.0),
    "prior_weights": ArraySpec(("C",), least=0.0, most=1.0),
    "noise": ArraySpec(("C",), least=LEAST_NOISE, most=LARGEST_VARIANCE),
    "trusts_logs": ArraySpec(("C",), "int64", 0, 1),
    "online": ArraySpec((2, "d+1", "d+1")),
    "recent": ArraySpec((mixture_kernels.RECENT,)),
    "seen": ArraySpec((1,), least=0.0),
    "mixture_moments": ArraySpec(("d+1", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE),
    "believed_noise": ArraySpec((1,), least=LEAST_NOISE, most=LARGEST_VARIANCE),
}


class FilterMixture:
    """C filters over d coordinates: those along the prior's basis, then the reward baseline if it is kept.

    Parameters
    ----------
    prior : DriftPrior
        What the logs teach.
    state : mapping of str to array
        `hypothesis_index` (C,) and the parts STATE; `mixture_moments` and `believed_noise` follow from them,
        unless they are here, as they were summed up to the last bit.
    share : float
        Part of the weights that returns to the prior weights each round.
    learns_noise : bool
        Whether every filter learns its noise variance.
    caution : float or None
        Share of the believed gain that may be spent on tests; None: no limit.

    Attributes
    ----------
    buffer : array, one-dimensional
        All of it but `hypothesis_index`, as the compiled loops take it.
    hypothesis_index : array of int, shape (C,)
        Places in HYPOTHESES.
    """

    def __init__(
        self,
        prior: DriftPrior,
        state: Mapping[str, Array],
        *,
        share: float,
        learns_noise: bool,
        caution: float | None,
    ) -> None:
        (C, d), p = state["means"].shape, len(prior.mean)
        precision = prior.usual_precision(d > p)
        self.hypothesis_index = np.array(state["hypothesis_index"], dtype=np.int64)
        self.buffer = np.zeros(kernels.buffer_size(C, p, d, len(precision)))
        self.buffer[list(kernels.SIZES)] = C, p, d, len(precision)
        filters = self.filters
        filters.basis[:], filters.log_precision[:] = prior.basis, precision
        filters.logs_mean[:] = np.append(prior.mean, prior.baseline)[:d]
        for name in STATE:
            getattr(filters, name)[:] = state[name]
        numbers = filters.numbers
        numbers[kernels.REFERENCE] = self._reference(filters.process)
        numbers[kernels.LINK] = kernels.LOGIT if prior.link == "logit" else kernels.IDENTITY
        numbers[kernels.SHARE], numbers[kernels.SEEN] = share, state["seen"][0]
        numbers[kernels.CAUTION] = kernels.NO_LIMIT if caution is None else caution
        weighing = (STUDENT_FREEDOM, trust(prior)) if learns_noise else (0.0, 1.0)
        numbers[kernels.FREEDOM], numbers[kernels.TRUST] = weighing
        numbers[kernels.NOISE] = filters.weights @ filters.noise if learns_noise else prior.noise_variance
        if "mixture_moments" in state:
            filters.mixture_moments[:], numbers[kernels.NOISE] = (
                state["mixture_moments"],
                state["believed_noise"][0],
            )
        else:
            kernels.refresh_moments(self.buffer)

    @staticmethod
    def initial_state(prior: DriftPrior, members: Sequence[Member], d: int) -> dict[str, Array]:
        """The state of a mixture that starts from these members over d coordinates."""
        if not members or any(len(member.mean) != d for member in members):
            raise InputError(f"members must not be empty and must have {d} coordinates each")
        weights = np.array([member.weight for member in members])
        return {
            "hypothesis_index": np.array([HYPOTHESES.index(member.hypothesis) for member in members]),
            "means": np.stack([member.mean for member in members]),
            "covariances": np.stack([member.covariance for member in members]),
            "process": np.stack([member.process for member in members]),
            "weights": weights / weights.sum(),
            "prior_weights": weights / weights.sum(),
            "noise": np.full(len(weights), prior.noise_variance),
            "trusts_logs": np.array([member.trusts_logs for member in members]),
            "online": np.zeros((2, d + 1, d + 1)),
            "recent": np.zeros(kernels.RECENT),
            "seen": np.zeros(1),
        }

    def _reference(self, process: Array) -> int:
        """The filter that knows online rounds alone: the first still one of the last hypothesis that has
        such.
        """
        still = process.sum(axis=1) == 0.0
        widest = np.where(still, self.hypothesis_index, -1)
        return int(np.argmax(widest)) if still.any() else int(np.argmax(self.hypothesis_index))

    @property
    def filters(self) -> mixture_kernels.Filters:
        """Views of the buffer by name."""
        filters: mixture_kernels.Filters = kernels.unpack(self.buffer)
        return filters

    @property
    def reference(self) -> int:
        """Place of the filter that knows online rounds alone."""
        return int(self.buffer[kernels.REFERENCE])

    @property
    def believed_noise(self) -> float:
        """Variance of a reward about its expectation: the mixture's, or that of the logs where it is not
        learned.
        """
        return float(self.buffer[kernels.NOISE])

    def __len__(self) -> int:
        return len(self.hypothesis_index)

    def mean_and_covariance(self) -> tuple[Array, Array]:
        """Mean (d,) and covariance (d, d) of the mixture."""
        moments = self.filters.mixture_moments
        lower = np.tril(moments[1:])
        return moments[0].copy(), lower + np.tril(lower, -1).T

    @property
    def doubts_logs(self) -> bool:
        """Whether filters that do not trust the logs hold more than half of the weight."""
        filters = self.filters
        return bool(filters.weights[filters.trusts_logs == 0.0].sum() > 0.5)

    def hypothesis_weights(self) -> dict[str, float]:
        """Probability of each hypothesis."""
        weights = np.bincount(self.hypothesis_index, weights=self.filters.weights, minlength=len(HYPOTHESES))
        return dict(zip(HYPOTHESES, weights.tolist(), strict=True))

    def distances(self, features: Array) -> Array:
        """How far actions (K, p) are from 0, in units of what is usual in the logs (K,); empty if that is
        not known.
        """
        filters = self.filters
        if not len(filters.log_precision):
            return np.zeros(0)
        z = features @ filters.basis
        z = np.column_stack([z, np.ones(len(z))]) if len(filters.logs_mean) > z.shape[1] else z
        return np.asarray(np.sqrt(np.einsum("kd,de,ke->k", z, filters.log_precision, z) / z.shape[1]))

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The state as arrays by name."""
        filters = self.filters
        state = {name: getattr(filters, name).copy() for name in (*STATE, "mixture_moments")}
        return {
            **state,
            "trusts_logs": state["trusts_logs"].astype(np.int64),
            "hypothesis_index": self.hypothesis_index.copy(),
            "believed_noise": np.array([self.believed_noise]),
            "seen": filters.numbers[[kernels.SEEN]],
        }

    # -- arms that come and go --

    def grown(self, before: DriftPrior, starts: Sequence[Member]) -> dict[str, Array]:
        """The state with the coordinates of one arm more, after the others.

        Every filter believes of the new arm what it believes of the arms: `starts` are the members that would
        start with it, and the new coordinates follow from the old ones by the regression of their Gaussians.
        """
        if len(starts) != len(self):
            raise InputError("an arm can be added to the default members only, this policy has others")
        filters, d = self.filters, len(starts[0].mean)
        new = before.layout.arms * before.layout.own + np.arange(before.layout.own)
        old = np.delete(np.arange(d), new)
        beliefs = zip(starts, filters.means, filters.covariances, strict=True)
        grown = [_with_coordinates(*belief, new, old) for belief in beliefs]
        process = np.stack([member.process for member in starts])
        process[:, old] = filters.process
        online, at = np.zeros((2, d + 1, d + 1)), np.append(old, d)
        online[np.ix_(np.arange(2), at, at)] = filters.online
        means, covariances = (np.stack(part) for part in zip(*grown, strict=True))
        return self._with_state(means=means, covariances=covariances, process=process, online=online)

    def shrunk(self, before: DriftPrior, arm: int) -> dict[str, Array]:
        """The state without the coordinates of an arm; what was learned of the others stays."""
        filters, d = self.filters, len(self.filters.logs_mean)
        rest = np.append(before.layout.coordinates_without(arm), np.arange(before.layout.dim, d))
        at = np.append(rest, d)
        return self._with_state(
            means=filters.means[:, rest],
            covariances=filters.covariances[:, rest][:, :, rest],
            process=filters.process[:, rest],
            online=filters.online[:, at][:, :, at],
        )

    def _with_state(self, **changed: Array) -> dict[str, Array]:
        """The state with some parts changed; what follows from it is worked out anew."""
        state = {**self.arrays(), **changed}
        return {
            name: part for name, part in state.items() if name not in ("mixture_moments", "believed_noise")
        }


def _with_coordinates(
    start: Member, mean: Array, lower: Array, new: Array, old: Array
) -> tuple[Array, Array]:
    """Mean and covariance of a filter with the new coordinates; `start` is what it would start from with
    them.
    """
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
