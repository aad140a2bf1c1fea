"""Arms that never change: features and coefficients give the expected rewards, and as many change as was
asked.
"""

import numpy as np
import pytest

from invariant_bandits import InputError
from invariant_bandits.simulation.stress_worlds import FixedArms


@pytest.mark.parametrize("contexts", [0, 2])
def test_features_coefficients_and_the_first_arms_value_give_the_expected_rewards(
    contexts,
):
    episode = FixedArms(arms=4, contexts=contexts, logged=300).draw(
        50, np.random.default_rng(0)
    )
    linear = np.einsum("tkp,tp->tk", episode.offered, episode.coefficients)
    baseline = episode.means - linear
    np.testing.assert_allclose(
        baseline, np.broadcast_to(baseline[0, 0], baseline.shape), atol=1e-12
    )
    if contexts == 0:
        assert not episode.offered[:, 0].any()  # the first arm is coded as zero


@pytest.mark.parametrize(("changed", "count"), [(0.0, 0), (0.5, 5), (1.0, 10)])
def test_as_many_arms_change_as_was_asked_for(changed, count):
    episode = FixedArms(arms=10, changed=changed, logged=60_000).draw(
        1, np.random.default_rng(1)
    )
    logs = episode.logs
    before = np.array([logs.rewards[logs.actions == arm].mean() for arm in range(10)])
    moved = np.abs(before - episode.means[0]) > 0.07  # five standard errors
    assert count - 1 <= moved.sum() <= count


def test_settings_that_cannot_be_are_named():
    for options, words in (
        ({"arms": 1}, "arms"),
        ({"changed": 1.5}, "changed must be from 0 to 1"),
    ):
        with pytest.raises(InputError, match=words):
            FixedArms(**options)
