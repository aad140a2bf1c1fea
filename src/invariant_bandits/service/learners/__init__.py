"""What decides and learns inside a service: fitted models, and models that begin empty.

Learners must not know events, the store or HTTP.
"""

from invariant_bandits.service.learners.base import Choice, Learner, Round, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner

__all__ = ["Choice", "FittedLearner", "Learner", "OpenLearner", "Round", "learner_from_bytes"]
