"""Blocks of consecutive rounds: neighbouring rounds may depend on each other, blocks hardly do."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array

BLOCKS = 30


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean of values (n,) and its standard error over blocks of time."""
    mean = float(values.mean())
    return mean, float(np.linalg.norm(scaled_block_sums(values - mean))) / len(values)


def scaled_block_sums(values: Array) -> Array:
    """Sums of (n,) over B blocks, times √(B/(B−1)): the sum of their squares estimates the variance of the total."""
    sums = block_sums(values)
    return np.asarray(sums * np.sqrt(len(sums) / (len(sums) - 1)))


def block_sums(values: Array, blocks: int = BLOCKS) -> Array:
    """Sums of (n,) over at most `blocks` consecutive stretches of at least two rounds, as equal as can be."""
    return np.asarray(np.add.reduceat(values, block_starts(len(values), blocks)))


def block_starts(rounds: int, blocks: int = BLOCKS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """First round of each block."""
    return np.linspace(0, rounds, min(blocks, rounds // 2) + 1)[:-1].round().astype(np.int64)


def clustering(values: Array) -> float:
    """How many times the variance of values (n,) over blocks exceeds that of independent ones, at least 1."""
    scale = float(np.abs(values).max())
    if scale == 0.0:
        return 1.0
    scaled = values / scale
    sums = scaled_block_sums(scaled)
    return max(1.0, float(sums @ sums) / float(scaled @ scaled))
