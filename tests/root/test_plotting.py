"""Every result draws itself: on the caller's axes, or on new ones in a light or a dark theme."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.plotting import THEMES

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def results():
    episode = ib.simulation.PaperEpisodes(logged=800).draw(
        120, np.random.default_rng(0)
    )
    logs = episode.logs
    policy = ib.AutoISD.from_history(episode.moments)
    for features, rewards in zip(episode.offered, episode.rewards, strict=True):
        action = policy.select(features)
        policy.update(features[action], rewards[action])
    feedback = ib.evaluation.Feedback.from_arrays(
        logs.offered, logs.actions, logs.rewards, propensities=logs.propensities
    )
    return {
        "simulation": ib.simulate(
            ["linucb", "uniform"], ib.simulation.PaperEpisodes(logged=200), 50, 2, 0
        ),
        "comparison": ib.compare(feedback, ["linucb-warm", "uniform"]),
        "decomposition": ib.InvariantSubspaceDecomposition().fit(episode.moments),
        "belief": policy.explain(),
    }


@pytest.mark.parametrize(
    ("name", "count"),
    [("simulation", 1), ("comparison", 1), ("decomposition", 3), ("belief", 2)],
)
def test_axes_in_axes_out(results, name, count):
    _, given = plt.subplots(1, count, squeeze=False)
    returned = np.ravel(results[name].plot(given[0, 0] if count == 1 else given[0]))
    assert returned.tolist() == given.ravel().tolist()
    assert all(axis.has_data() for axis in returned)
    for theme, colours in THEMES.items():
        figure = np.ravel(results[name].plot(theme=theme))[0].figure
        assert plt.matplotlib.colors.to_hex(figure.get_facecolor()) == colours["paper"]
    plt.close("all")


def test_the_picture_of_a_belief_shows_its_numbers(results):
    belief = results["belief"]
    left, right = belief.plot(most=3)
    assert [bar.get_width() for bar in left.patches] == list(belief.hypotheses.values())
    furthest = np.argsort(-np.abs(belief.shifts) / belief.errors)[:3]
    shown = [line.get_xdata()[0] for line in right.lines if line.get_marker() in "osD"]
    np.testing.assert_array_equal(shown, belief.shifts[furthest])
    assert "<svg" in belief._repr_html_()
    plt.close("all")
