"""An off-policy estimator of your own: inverse propensity scores with weights cut at 10.

Run it with `python examples/own_estimator.py`.
"""

import numpy as np

import invariant_bandits as ib
from invariant_bandits.evaluation.estimators import importance_weights
from invariant_bandits.evaluation.intervals import estimated


@ib.register_estimator("cut IPS", rank=4)
def cut_ips(feedback, target, *, confidence=0.95):
    """Biased towards zero, but one rare round cannot rule the estimate."""
    weights = np.minimum(importance_weights(feedback, target), 10.0)
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    gains, ones = weights * feedback.rewards, np.ones(feedback.rounds)
    return estimated(gains, ones, effective_sample=effective, confidence=confidence)


if __name__ == "__main__":
    logs = ib.simulation.PaperWorld().log(4000, np.random.default_rng(0))
    feedback = ib.evaluation.Feedback.from_arrays(
        logs.offered, logs.actions, logs.rewards, propensities=logs.propensities
    )
    result = ib.compare(
        feedback, ["linucb-warm", "uniform"], estimators=["IPS", "cut IPS"]
    )
    for name in ("IPS", "cut IPS"):
        value = result.line("linucb-warm", name).value
        print(f"{name}: {value.value:.3f} ({value.low:.3f} to {value.high:.3f})")
