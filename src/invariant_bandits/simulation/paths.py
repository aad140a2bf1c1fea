"""How the residual coordinates move while the online rounds go by: one function per path, each (rounds, p_res)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number

ROTATION_CLOCK = 2000


def constant(values: Array, rounds: int) -> Array:
    """The same values (p_res,) in every round."""
    return np.tile(values, (rounds, 1))


def rotating(dim: int, rounds: int) -> Array:
    """The fast rotation of the seventh experiment, as an array (rounds, dim) whose rows have length 1.

    It starts at (1, …, 1)/√p_res. In round t each coordinate j moves by −0.5(t/2000)sin²(50jt/2000 + j), then all are
    renormalised.
    """
    j = np.arange(1, dim + 1)
    path = np.empty((rounds, dim))
    path[0] = 1.0 / np.sqrt(dim)
    for t in range(1, rounds):
        clock = t / ROTATION_CLOCK
        step = path[t - 1] - 0.5 * clock * np.sin(50.0 * j * clock + j) ** 2
        path[t] = step / np.linalg.norm(step)
    return path


def abrupt(first: Array, change_points: Array, rounds: int, rng: np.random.Generator) -> Array:
    """Values `first` (p_res,) until the first change point, then drawn afresh from uniform(0.5, 1.5) at each."""
    redrawn = rng.uniform(0.5, 1.5, size=(len(change_points), len(first)))
    return np.concatenate([first[None], redrawn])[stretches(change_points, rounds)]


def recurring(states: Array, change_points: Array, rounds: int) -> Array:
    """The states (m, p_res) in turn, the next one at each change point and the first again after the last."""
    return np.asarray(states[stretches(change_points, rounds) % len(states)])


def stretches(change_points: Array, rounds: int) -> Array:
    """For every round (rounds,) how many change points it has reached: a change point is the first round of the new."""
    return np.searchsorted(change_points, np.arange(rounds), side="right")


def change_points(changes: int | tuple[int, ...], rounds: int, rng: np.random.Generator) -> Array:
    """Sorted rounds (from 0) at which something changes: those given, or so many different ones at random."""
    if isinstance(changes, tuple):
        late = [point for point in changes if point >= rounds]
        if late:
            raise InputError(f"changes must lie below the horizon {rounds}, got {late[0]}")
        return np.array(changes, dtype=np.int64)
    if changes >= rounds:
        raise InputError(f"changes must be fewer than the {rounds} online rounds, got {changes}")
    return np.sort(rng.choice(np.arange(1, rounds), size=changes, replace=False))


def checked_changes(changes: int | tuple[int, ...]) -> None:
    """Raise unless `changes` is a whole number, or increasing rounds from 1 on."""
    if not isinstance(changes, tuple):
        whole_number("changes", changes, 0)
        return
    for point in changes:
        whole_number("changes", point, 1)
    if any(later <= earlier for earlier, later in pairwise(changes)):
        raise InputError(f"changes must increase, got {changes}")
