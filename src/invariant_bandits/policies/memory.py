"""Memories: what of the online past counts.

Forever, SlidingWindow, Discount and Restart are settings; `begin` makes the running state of one. Each memory
has a state with a `factor` (see `kernels`), from which estimate and norms are read the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isqrt
from typing import Any, ClassVar

import numpy as np

from invariant_bandits.checks import Array, probability, whole_number
from invariant_bandits.policies import kernels
from invariant_bandits.policies import radii as bounds
from invariant_bandits.storage import ArraySpec


def sums_of_window(window: int) -> int:
    """How many sums a window keeps, see `kernels`: its segments are ⌊√window⌋ rounds long."""
    segment = max(1, isqrt(window))
    return 1 + -(-window // segment) + segment


def _solve(R: Array, right: Array, transposed: bool = False) -> Array:
    """R⁻¹·right, or R⁻ᵀ·right, for an upper triangular R."""
    from scipy.linalg import solve_triangular

    return np.asarray(
        solve_triangular(R, right, trans=1 if transposed else 0, check_finite=False)
    )


class MemoryState(ABC):
    """Running state of a memory of q coordinates.

    Parameters
    ----------
    dim : int
        Number of coordinates q.
    ridge : float
        Regulariser λ.

    Attributes
    ----------
    factor : array, shape (q, q + 1)
        [R | w] with RᵀR = A and w = R⁻ᵀb, see `kernels`.
    rounds : int
        How many rounds it holds.
    """

    stored: tuple[str, ...] = ("factor",)
    """Names of the arrays that make up the state."""

    def __init__(self, dim: int, ridge: float) -> None:
        self.dim, self.ridge = dim, ridge
        self.factor = np.zeros((dim, dim + 1))
        self.clear()

    def clear(self) -> None:
        """Forget everything: A = λI, b = 0."""
        self.rounds = 0
        for array in self.arrays().values():
            array[...] = 0
        np.fill_diagonal(self.factor[: self.dim], np.sqrt(self.ridge))

    @abstractmethod
    def learn(self, features: Array, reward: float, lift: Array) -> float:
        """Add one round.

        Parameters
        ----------
        features : array, shape (p,)
            Features of the chosen action.
        reward : float
            Its reward.
        lift : array, shape (p, 1 + q + r) or (p, 0)
            Gives the residual coordinates of the round, see `kernels`.

        Returns
        -------
        float
            log det A/det λI, or a negative status after which nothing has changed.
        """

    def norm_root(self) -> Array:
        """N (q, q) such that ‖Nᵀz‖ is the norm of z that widths are made of."""
        return _solve(self.factor[: self.dim, : self.dim], np.eye(self.dim))

    def estimate(self) -> Array:
        """δ̂ = A⁻¹b (q,)."""
        return _solve(
            self.factor[: self.dim, : self.dim], self.factor[: self.dim, self.dim]
        )

    def perturbed(self, noise: Array) -> Array:
        """A copy of the factor whose estimate is off by N·noise, with noise (q,) and N the `norm_root`."""
        factor = self.factor.copy()
        factor[: self.dim, self.dim] += noise
        return factor

    def arrays(self) -> dict[str, Array]:
        """The state as arrays by name; bits depend on the order in which rounds were added."""
        return {name: getattr(self, name) for name in self.stored}

    def restore(self, arrays: Mapping[str, Array], rounds: int) -> None:
        """Continue from the state that `arrays` returned after so many rounds."""
        for name, array in self.arrays().items():
            array[...] = arrays[name]
        self.rounds = rounds

    @abstractmethod
    def radius(self, volume: float, assumed: bounds.Assumptions) -> float:
        """The radius that was published with the memory, log det A/det λI being `volume`."""

    @abstractmethod
    def recall(self, raw: Any, residual: Array, component: Array) -> None:
        """Become what a `raw` memory of all p coordinates is after the invariant part has been taken out.

        A = UᵀA_rawU and b = Uᵀ(b_raw − G_raw·β), G = A − λI.

        Parameters
        ----------
        raw : MemoryState
            The memory of all p coordinates, of the same kind.
        residual : array, shape (p, q)
            U_res, orthonormal columns.
        component : array, shape (p,)
            β.
        """

    def log_volume(self) -> float:
        """log det A/det λI."""
        return float(kernels.log_volume(self.factor, self.ridge))


class GrowingState(MemoryState):
    """Rounds are only added, by rotations of the factor. With `every`, all are forgotten after so many."""

    def __init__(self, dim: int, ridge: float, every: int | None = None) -> None:
        super().__init__(dim, ridge)
        self.every = every

    def learn(self, features: Array, reward: float, lift: Array) -> float:
        """Add one round, then perhaps restart."""
        volume: float = kernels.learn_growing(
            features, reward, lift, self.factor, self.ridge
        )
        if volume >= 0.0:
            self.rounds += 1
            if self.rounds == self.every:
                self.clear()
                return 0.0
        return volume

    def radius(self, volume: float, assumed: bounds.Assumptions) -> float:
        """Lemma 1."""
        return bounds.lemma1_radius(volume, *assumed[:4])

    def recall(self, raw: GrowingState, residual: Array, component: Array) -> None:
        """The sums from the factor, in the new coordinates."""
        R, w = np.triu(raw.factor[:, :-1]), raw.factor[:, -1]
        A, b = R.T @ R, R.T @ w
        self.factor[:, :-1] = residual.T @ A @ residual - self.ridge * np.eye(self.dim)
        self.factor[:, -1] = residual.T @ (b - A @ component + self.ridge * component)
        kernels.factorise(self.factor, self.ridge)
        self.rounds = raw.rounds


class DiscountedState(MemoryState):
    """Sums with weights γ^s and γ^{2s}, each discounted from itself."""

    stored = ("factor", "sums")

    def __init__(self, dim: int, ridge: float, discount: float) -> None:
        self.discount = discount
        self.sums = np.zeros((dim, dim + 1))
        super().__init__(dim, ridge)

    def clear(self) -> None:
        """Forget everything; the second matrix is λI too."""
        self.factor = np.zeros((2 * self.dim, self.dim + 1))
        super().clear()
        self.factor[self.dim :, self.dim] = self.ridge

    def learn(self, features: Array, reward: float, lift: Array) -> float:
        """Discount and add one round."""
        volume: float = kernels.learn_discounted(
            features, reward, lift, self.factor, self.sums, self.discount, self.ridge
        )
        self.rounds += volume >= 0.0
        return volume

    def _half_root(self) -> Array:
        """R⁻ᵀR̃ᵀ (q, q) with R̃ᵀR̃ = Ṽ."""
        second = self.factor[self.dim :].copy()
        kernels.factorise(second, self.ridge)
        return _solve(
            self.factor[: self.dim, : self.dim], np.triu(second[:, : self.dim]).T, True
        )

    def norm_root(self) -> Array:
        """A⁻¹R̃ᵀ."""
        return _solve(self.factor[: self.dim, : self.dim], self._half_root())

    def perturbed(self, noise: Array) -> Array:
        """As R·A⁻¹R̃ᵀ = R⁻ᵀR̃ᵀ, the last column moves by R⁻ᵀR̃ᵀ·noise."""
        return super().perturbed(self._half_root() @ noise)

    def recall(self, raw: DiscountedState, residual: Array, component: Array) -> None:
        """Both sums in the new coordinates."""
        p, q = raw.dim, self.dim
        first, second = (
            half + np.triu(half, 1).T for half in (raw.sums[:, :p], raw.factor[p:, :p])
        )
        self.sums[:, :q] = np.triu(residual.T @ first @ residual)
        self.sums[:, q] = residual.T @ (raw.sums[:, p] - first @ component)
        self.factor[q:, :q] = np.triu(residual.T @ second @ residual)
        self.factor[:q] = self.sums
        kernels.factorise(self.factor[:q], self.ridge)
        self.rounds = raw.rounds

    def radius(self, volume: float, assumed: bounds.Assumptions) -> float:
        """Russac et al. (2019), for rounds of which all count."""
        return bounds.discounted_radius(self.rounds, self.dim, self.discount, assumed)


class WindowState(MemoryState):
    """The last `window` rounds, from partial sums that are only ever added to."""

    stored = ("factor", "sums", "rows", "clock")

    def __init__(self, dim: int, ridge: float, window: int) -> None:
        self.window = window
        self.rows = np.zeros((window, dim + 1))
        self.clock = np.zeros(2, dtype=np.int64)
        self.sums = np.zeros((sums_of_window(window), dim, dim + 1))
        super().__init__(dim, ridge)

    def learn(self, features: Array, reward: float, lift: Array) -> float:
        """Add one round and drop the one that leaves the window."""
        volume: float = kernels.learn_windowed(
            features,
            reward,
            lift,
            self.factor,
            self.sums,
            self.rows,
            self.clock,
            self.ridge,
        )
        if volume >= 0.0 and self.rounds < self.window:
            self.rounds += 1
        return volume

    def recall(self, raw: WindowState, residual: Array, component: Array) -> None:
        """The rounds of the window in the new coordinates, learned again in their order."""
        self.clear()
        order = np.roll(
            np.arange(raw.window), -int(raw.clock[0]) if raw.clock[1] else 0
        )[: raw.rounds]
        for row in raw.rows[order]:
            features = np.ascontiguousarray(residual.T @ row[:-1])
            self.learn(
                features, float(row[-1] - row[:-1] @ component), np.zeros((self.dim, 0))
            )

    def radius(self, volume: float, assumed: bounds.Assumptions) -> float:
        """Cheung et al. (2019)."""
        return bounds.sliding_window_radius(self.dim, self.window, assumed)


@dataclass(frozen=True)
class Memory:
    """What of the online past counts: Forever, SlidingWindow, Discount or Restart."""

    state: ClassVar[Callable[..., MemoryState]] = GrowingState

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            object.__setattr__(self, name, self._checked(name, value))

    @staticmethod
    def _checked(name: str, value: Any) -> Any:
        """The one number of a memory, as it is used."""
        return whole_number(name, value, 1)

    def begin(self, dim: int, ridge: float) -> MemoryState:
        """An empty memory of `dim` coordinates."""
        return type(self).state(dim, ridge, **vars(self))

    @property
    def length(self) -> tuple[str, int] | None:
        """Name and value of the number of rounds that it holds at most; None if there is no such number."""
        return None

    def array_specs(self, q: str) -> dict[str, ArraySpec]:
        """What the arrays of its state must be, for q coordinates."""
        return {"factor": ArraySpec((q, f"{q}+1"))}

    def to_settings(self) -> dict[str, Any]:
        """The memory as plain values."""
        return {"kind": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_settings(settings: Mapping[str, Any]) -> Memory:
        """The memory of which `to_settings` made these."""
        kinds = {kind.__name__: kind for kind in Memory.__subclasses__()}
        rest = dict(settings)
        return kinds[rest.pop("kind")](**rest)


@dataclass(frozen=True)
class Forever(Memory):
    """Memory without forgetting: every online round has the same weight.

    >>> import invariant_bandits as ib
    >>> ib.LinUCB(3, memory=ib.Forever())
    LinUCB(dim=3, memory=Forever(), rounds=0)
    """


@dataclass(frozen=True)
class SlidingWindow(Memory):
    """Memory of the latest online rounds; older rounds are forgotten (Cheung et al. 2019).

    Parameters
    ----------
    window : int
        Number of rounds that are remembered. The memory SlidingWindow stores about 2√window matrices.

    >>> import invariant_bandits as ib
    >>> ib.LinTS(3, memory=ib.SlidingWindow(100))
    LinTS(dim=3, memory=SlidingWindow(window=100), rounds=0)
    """

    window: int
    state = WindowState

    @property
    def length(self) -> tuple[str, int]:
        """The window."""
        return "window", self.window

    def array_specs(self, q: str) -> dict[str, ArraySpec]:
        """Return the shapes of the stored arrays: rounds of the window, sums, index of the next round."""
        return super().array_specs(q) | {
            "rows": ArraySpec((self.window, f"{q}+1")),
            "sums": ArraySpec((sums_of_window(self.window), q, f"{q}+1")),
            "clock": ArraySpec((2,), "int64", 0, (self.window - 1, 1)),
        }


@dataclass(frozen=True)
class Discount(Memory):
    """Memory in which a round that is s rounds old has the weight discount^s (Russac et al. 2019).

    Parameters
    ----------
    discount : float
        Factor, strictly between 0 and 1, by which the weight of every old round shrinks in each new round.
        The memory Discount holds about 1/(1 − discount) rounds.

    >>> import invariant_bandits as ib
    >>> ib.LinUCB(3, memory=ib.Discount(0.99))
    LinUCB(dim=3, memory=Discount(discount=0.99), rounds=0)
    """

    discount: float
    state, _checked = DiscountedState, staticmethod(probability)

    def array_specs(self, q: str) -> dict[str, ArraySpec]:
        """Shapes of the stored arrays: the factor over the second sum, and the first sum."""
        return {
            "factor": ArraySpec((f"2{q}", f"{q}+1")),
            "sums": ArraySpec((q, f"{q}+1")),
        }


@dataclass(frozen=True)
class Restart(Memory):
    """Memory that forgets all rounds after a fixed number of rounds and starts again (Zhao et al. 2020).

    Parameters
    ----------
    every : int
        Number of rounds between two restarts.

    >>> import invariant_bandits as ib
    >>> policy = ib.LinUCB(1, memory=ib.Restart(2))
    >>> for _ in range(2):
    ...     policy.update([1.0], 1.0)
    >>> policy.coefficients.tolist()
    [0.0]
    """

    every: int

    @property
    def length(self) -> tuple[str, int]:
        """The rounds between two restarts."""
        return "every", self.every


FOREVER = Forever()
