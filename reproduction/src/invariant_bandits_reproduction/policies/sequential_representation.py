"""A representation that tasks share, learned from one task to the next (Qin et al. 2022)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.policies.base import BasePolicy, Option
from invariant_bandits.policies.choice import Choice
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import (
    ANYTHING,
    ArraySpec,
    StateSchema,
    counters,
    prefixed,
    under,
)
from invariant_bandits_reproduction.policies.affine_subspace import AffineLinUCB

NARROW, WIDE = "narrow.", "wide."
CHANGE_LEVEL = 1e-3
"""Level of each test whether the representation has changed."""
TASK_SHARE = 0.1
"""Part of the horizon that is a task by default."""
LOOKS = 4
"""How often a task is looked at."""


@register_policy("sequential-linucb")
class SequentialLinUCB(BasePolicy):
    """LinUCB for a sequence of tasks whose coefficients lie in one low-dimensional subspace (Qin et al.
    2022).

    After a fixed number of rounds a new task with new coefficients begins. The policy estimates the subspace
    from the coefficients of the finished tasks. Once as many tasks are finished as the subspace has
    dimensions, the policy learns new tasks inside the subspace. If the rewards of a task do not fit the
    subspace, the policy forgets the subspace and learns the task in all features.

    Parameters
    ----------
    dim : int
        Number of features p.
    task : int
        Number of rounds in each task.
    rank : int
        Dimension r of the subspace.
    **common :
        The parameters ridge, delta, noise_scale, norm_bound, feature_bound and exploration of
        LinearPolicy.

    >>> from invariant_bandits_reproduction.policies import SequentialLinUCB
    >>> import numpy as np, invariant_bandits as ib
    >>> policy = SequentialLinUCB(2, task=50, rank=1, noise_scale=0.1)
    >>> for t in range(50):
    ...     row = np.eye(2)[t % 2]
    ...     policy.update(row, float(row @ [1.0, 1.0]))
    >>> policy.representation.round(2).tolist()
    [[0.71], [0.71]]
    """

    options: ClassVar[Mapping[str, Option]] = {
        **LinUCB.options,
        "task": Option(None, partial(whole_number, least=2)),
        "rank": Option(2, partial(whole_number, least=1)),
    }
    needs = LinUCB.needs
    shown = ("dim", "task", "rank")
    task: int
    rank: int

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.tasks = 0
        self._common = {name: getattr(self, name) for name in LinUCB.options}
        self._moment = np.zeros((self.dim, self.dim))
        self._begin_task()

    @classmethod
    def from_past(cls, past: Past, *, task: int | None = None, **options: Any) -> Self:
        """Return a SequentialLinUCB policy, which does not learn from the logged rounds.

        By default a task has `past.suggested_window` rounds, or else a tenth of `past.horizon`.
        `Past.memory_length` has the exact rule.
        """
        length = max(past.memory_length("task", task, share=TASK_SHARE), 2)
        return super().from_past(past, task=length, **options)

    @property
    def representation(self) -> Array | None:
        """Basis (p, rank) of the subspace that contains the coefficients of finished tasks, or None while
        fewer than `rank` tasks are finished.
        """
        if self.tasks < self.rank:
            return None
        vectors = np.linalg.eigh(self._moment)[1][:, -self.rank :]
        return np.asarray(vectors * np.where(vectors.sum(axis=0) < 0.0, -1.0, 1.0))

    def _begin_task(self) -> None:
        self._wide = LinUCB(self.dim, **self._common)
        axes = self.representation
        self._narrow = (
            None
            if axes is None
            else AffineLinUCB(np.zeros(self.dim), axes, **self._common)
        )

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions as LinUCB does, in the subspace if it is known."""
        with self._lock:
            policy = self._wide if self._narrow is None else self._narrow
            return policy.decide(offered)

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action, and after each task update the estimate of the subspace that
        all tasks share.
        """
        with self._lock:
            self._wide.update(features, reward)
            if self._narrow is not None:
                self._narrow.update(features, reward)
            self.rounds += 1
            inside = self.rounds % self.task
            if (
                self._narrow is not None
                and inside % max(self.task // LOOKS, self.dim) == 0
            ):
                self._look()
            if inside == 0:
                self._end_task()

    def _estimate(self) -> tuple[Array, Array]:
        """Coefficients of the task in all features (p,) and their covariance (p, p)."""
        root = self._wide.noise_scale * self._wide._memory.norm_root()
        return self._wide.coefficients, np.asarray(root @ root.T)

    def _look(self) -> None:
        """Forget the representation if the coefficients of the task lie off it."""
        assert self._narrow is not None
        estimate, covariance = self._estimate()
        off = np.linalg.qr(self._narrow.axes, mode="complete")[0][:, self.rank :]
        apart = off.T @ estimate
        size = float(apart @ np.linalg.solve(off.T @ covariance @ off, apart))
        if special.chdtrc(off.shape[1], size) < CHANGE_LEVEL:
            self._moment[:] = 0.0
            self.tasks = 0
            self._narrow = None

    def _end_task(self) -> None:
        estimate, covariance = self._estimate()
        self._moment += np.outer(estimate, estimate) - covariance
        self.tasks += 1
        self._begin_task()

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The sum over tasks, the counters, and the regressions of the present task."""
        with self._lock:
            own = {
                "moment": self._moment.copy(),
                "counters": np.array([self.rounds, self.tasks]),
            }
            narrow = (
                {} if self._narrow is None else prefixed(NARROW, self._narrow.arrays())
            )
            return own | prefixed(WIDE, self._wide.arrays()) | narrow

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """Sum over tasks, counters, and the two regressions."""
        own = {"moment": ArraySpec(("p", "p")), "counters": counters(2)}
        sizes = {"p": whole_number("dim", settings["dim"], 1)}
        return StateSchema(own, sizes=sizes, parts={NARROW: ANYTHING, WIDE: ANYTHING})

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.rounds, self.tasks = (int(value) for value in arrays["counters"])
        self._moment[...] = arrays["moment"]
        self._wide._restore(under(arrays, WIDE))
        narrow = under(arrays, NARROW)
        self._narrow = (
            AffineLinUCB(narrow["center"], narrow["axes"], **self._common)
            if narrow
            else None
        )
        if self._narrow is not None:
            self._narrow._restore(narrow)
