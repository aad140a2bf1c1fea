"""Whatever rounds AutoISD is told, its state stays one to decide by; what had to be cut short is counted
and said.
"""

import warnings

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
from invariant_bandits.policies import mixture_kernels
from invariant_bandits.policies.auto import MANY_CUT, OutlierWarning
from invariant_bandits.policies.base import from_bytes, to_bytes

WINDOWS = 8


def logs(noise=1.0, level=0.0, dim=3, rounds=800, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rounds, dim))
    rewards = (
        level + features @ np.arange(1.0, dim + 1.0) + noise * rng.normal(size=rounds)
    )
    return ib.WindowedMoments.from_arrays(features, rewards, windows=WINDOWS)


def is_whole(policy):
    """Finite, no variance below 0, weights that add up; decisions finite."""
    state = policy.arrays()
    assert all(
        np.isfinite(array).all()
        for name, array in state.items()
        if array.dtype == np.float64
    )
    assert (np.diagonal(state["covariances"], axis1=1, axis2=2) >= 0.0).all()
    assert state["weights"].sum() == pytest.approx(1.0)
    assert (state["noise"] > 0.0).all()
    assert np.isfinite(policy.scores(np.eye(policy.dim)).width).all()
    from_bytes(to_bytes(policy), "again")
    return True


@pytest.mark.parametrize("noise", ["learned", "known"])
def test_every_second_action_ten_million_times_as_large_is_refused_or_harmless(noise):
    """As it was found: 180 such updates made every belief NaN."""
    policy, rng = ib.AutoISD.from_history(logs(), noise=noise), np.random.default_rng(1)
    refused = 0
    for t in range(400):
        try:
            policy.update(
                rng.normal(size=3) * (1e7 if t % 2 else 1.0), float(rng.normal())
            )
        except ib.InputError:
            refused += 1
    assert policy.rounds == 400 - refused
    assert refused > 150
    assert is_whole(policy)


@pytest.mark.filterwarnings("ignore::invariant_bandits.policies.auto.OutlierWarning")
@pytest.mark.parametrize("size", [1e3, 1e5, 9e5])
@pytest.mark.parametrize("noise", ["learned", "known"])
def test_rounds_just_within_what_is_taken_leave_a_state_to_decide_by(size, noise):
    policy, rng = ib.AutoISD.from_history(logs(), noise=noise), np.random.default_rng(2)
    for t in range(1000):
        scale = size * rng.random() if t % 2 else 1.0
        policy.update(rng.normal(size=3) / 3.0 * scale, float(scale * rng.normal()))
    assert is_whole(policy)


def test_rounds_cut_short_are_counted_stored_and_warned_of_once():
    policy, rng = ib.AutoISD.from_history(logs()), np.random.default_rng(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(40):
            policy.update(rng.normal(size=3), 1e6 * float(rng.normal()))
    assert [one.category for one in said] == [OutlierWarning]
    assert "of the logs?" in str(said[0].message)
    assert 40 >= policy.winsorised >= MANY_CUT
    assert f"outliers: {policy.winsorised} rounds cut short" in str(policy.explain())
    loaded = from_bytes(to_bytes(policy), "again")
    assert loaded.winsorised == policy.winsorised


def test_ordinary_rounds_and_a_rare_outlier_are_not_warned_of():
    """Warnings are errors here. Of 300 normal errors none is ten standard deviations, at odds of 10²⁰ to
    1.
    """
    policy = ib.AutoISD.from_history(policy_laws.history())
    policy_laws.play(policy, 300, seed=1)
    assert policy.winsorised == 0
    assert "outliers" not in str(policy.explain())
    policy.update(np.ones(policy.dim), 1e9)
    assert policy.winsorised == 1


def test_a_round_whose_squares_would_overflow_is_refused_before_anything_is_changed():
    """A state of huge means, as an old file may hold, would square a finite error to infinity."""
    policy = ib.AutoISD.from_history(logs(), intercept=False)
    policy.mixture.filters.means[:] = 1e99
    before = {name: array.tobytes() for name, array in policy.arrays().items()}
    with pytest.raises(ib.InputError, match="must be smaller"):
        policy.update(np.full(3, 1e5), 1.0)
    assert {name: array.tobytes() for name, array in policy.arrays().items()} == before


@pytest.mark.filterwarnings("ignore::invariant_bandits.policies.auto.OutlierWarning")
def test_predictions_that_are_always_exact_do_not_wear_the_noise_away():
    """The learned variance would fall below any number: it stops at one that can still be divided by."""
    policy = ib.AutoISD.from_history(logs(noise=0.0))
    policy.mixture.filters.noise[:] = 1.001 * mixture_kernels.LEAST_NOISE
    rng, truth = np.random.default_rng(4), np.array([1.0, 2.0, 3.0])
    for _ in range(300):
        row = rng.normal(size=3)
        policy.update(row, float(row @ truth))
    assert (policy.arrays()["noise"] >= mixture_kernels.LEAST_NOISE).all()
    assert is_whole(policy)


@pytest.mark.parametrize("level", [0.0, 100.0])
def test_logs_without_noise_have_a_floor_relative_to_their_rewards_and_a_finding(level):
    moments = logs(noise=0.0, level=level)
    fit = ib.InvariantSubspaceDecomposition().fit(moments)
    assert any("exact function of the features" in one for one in fit.findings_)
    policy = ib.AutoISD.from_history(moments)
    variance = float(moments.reward_square.sum()) / moments.rounds
    assert 0.9e-12 * variance <= policy.prior.noise_variance <= 1e-11 * variance
    row = np.array([0.5, -1.0, 2.0])
    policy.update(row, level + float(row @ [1.0, 2.0, 3.0]))
    assert is_whole(policy)
    assert not any(
        "exact function" in one
        for one in ib.InvariantSubspaceDecomposition().fit(logs()).findings_
    )


@pytest.mark.parametrize("level", [0.0, 3.0, 0.1])
def test_rewards_that_never_vary_have_a_floor_and_a_finding(level):
    rng = np.random.default_rng(5)
    moments = ib.WindowedMoments.from_arrays(
        rng.normal(size=(400, 3)), np.full(400, level), windows=4
    )
    policy = ib.AutoISD.from_history(moments)
    assert policy.prior.noise_variance >= 0.9e-12 * (level**2 if level else 1.0)
    assert any(
        "hardly vary" in one
        for one in ib.InvariantSubspaceDecomposition().fit(moments).findings_
    )
    policy.update(np.ones(3), level)
    assert is_whole(policy)


def test_labelled_arms_whose_rewards_are_exact_are_a_note_of_the_model(tmp_path):
    rng = np.random.default_rng(6)
    banner, age = rng.integers(2, size=1200), rng.normal(size=1200).round(3)
    for noise, told in ((0.0, True), (0.1, False)):
        rewards = (
            3.0 + np.where(banner == 0, 1.0, -1.0) * age + noise * rng.normal(size=1200)
        )
        lines = [
            f"{'ab'[k]},{x},{r!r}"
            for k, x, r in zip(
                banner.tolist(), age.tolist(), rewards.tolist(), strict=True
            )
        ]
        (tmp_path / "log.csv").write_text("\n".join(["banner,age,reward", *lines]))
        model = ib.fit_logs(tmp_path / "log.csv", schema={"arm": "banner"})
        assert (
            any("exact function of the features" in note for note in model.notes)
            == told
        )
        assert is_whole(model.policy)


def test_a_delta_whose_inverse_is_infinite_is_refused():
    with pytest.raises(ib.InputError, match="delta must be at least 1e-300"):
        ib.LinUCB(2, delta=5e-324)
    assert np.isfinite(ib.LinUCB(2, delta=1e-299).scores(np.eye(2)).width).all()


@pytest.mark.parametrize(
    "setting", ["ridge", "noise_scale", "feature_bound", "norm_bound", "exploration"]
)
def test_settings_whose_radii_would_be_infinite_are_refused(setting):
    for value in (1e-308, 1e300):
        with pytest.raises(
            ib.InputError, match=f"{setting} must lie between 1e-100 and 1e\\+100"
        ):
            ib.LinUCB(2, **{setting: value})
    for value in (1e-100, 1e100):
        assert np.isfinite(
            ib.LinUCB(2, **{setting: value}).scores(np.eye(2)).width
        ).all()
