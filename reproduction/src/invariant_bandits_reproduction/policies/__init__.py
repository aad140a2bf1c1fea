"""Policies of related literature, for comparisons: importing this package registers all of them."""

from invariant_bandits_reproduction.policies.affine_subspace import (
    AffineLinUCB as AffineLinUCB,
)
from invariant_bandits_reproduction.policies.invariant_set import (
    InvariantSetPolicy as InvariantSetPolicy,
)
from invariant_bandits_reproduction.policies.latent_autoregressive import (
    LatentARLinUCB as LatentARLinUCB,
)
from invariant_bandits_reproduction.policies.latent_subspace import (
    LatentLinUCB as LatentLinUCB,
)
from invariant_bandits_reproduction.policies.min_ucb import (
    EllipsoidalMinUCB as EllipsoidalMinUCB,
)
from invariant_bandits_reproduction.policies.min_ucb import (
    MinUCB as MinUCB,
)
from invariant_bandits_reproduction.policies.sequential_representation import (
    SequentialLinUCB as SequentialLinUCB,
)
from invariant_bandits_reproduction.policies.weight_ucb import WeightUCB as WeightUCB

__all__ = [
    "AffineLinUCB",
    "EllipsoidalMinUCB",
    "InvariantSetPolicy",
    "LatentARLinUCB",
    "LatentLinUCB",
    "MinUCB",
    "SequentialLinUCB",
    "WeightUCB",
]
