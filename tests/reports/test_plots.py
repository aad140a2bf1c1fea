"""Pictures: every panel is there, in both themes, for the smallest and for larger problems."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits import plotting
from invariant_bandits.decomposition.estimator import readable_directions
from invariant_bandits.reports import plots, values
from invariant_bandits.simulation.paper import PaperWorld


@pytest.fixture(scope="module")
def fit():
    logs = PaperWorld().log(2000, np.random.default_rng(5))
    moments = ib.WindowedMoments.from_arrays(
        logs.features, logs.rewards, windows=8, offered=logs.offered
    )
    return ib.InvariantSubspaceDecomposition().fit(moments)


def fit_of_dimension(p, windows=4):
    rng = np.random.default_rng(p)
    scales = np.repeat(rng.uniform(0.5, 2.0, size=(windows, p)), 300, axis=0)
    features = rng.normal(size=(300 * windows, p)) * scales
    return ib.InvariantSubspaceDecomposition().fit(
        features,
        features @ np.ones(p) + rng.normal(size=len(features)),
        windows=windows,
    )


@pytest.mark.slow
def test_the_overview_is_written_in_every_format_and_theme(fit, tmp_path):
    paths = plots.save(
        plots.overview(fit, theme_name="light"), tmp_path / "new" / "picture"
    )
    assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
    paths += plots.save(
        plots.overview(fit, theme_name="dark"), tmp_path / "new" / "dark", ["png"]
    )
    assert all(path.stat().st_size > 5000 for path in paths)
    assert paths[0].read_bytes() != paths[-1].read_bytes()


def test_the_same_fit_gives_the_same_svg(fit, tmp_path):
    first, second = (
        plots.save(fit.plot()[0].figure, tmp_path / name, ["svg"])[0] for name in "ab"
    )
    assert first.read_bytes() == second.read_bytes()


def test_paths_come_with_the_strongest_evidence_first_and_say_what_drifts(fit):
    titles = [
        axis.get_title(loc="left")
        for axis in fit.plot(most=24)
        if axis.get_title(loc="left")
    ]
    plots.plt.close("all")
    assert len(titles) == 10
    drifting = [" → " in title for title in titles]
    assert drifting == sorted(drifting, reverse=True)
    assert 1 <= sum(drifting) <= fit.split_.residual_dim


def test_blocks_are_framed_in_the_found_basis(fit):
    figure = plots.overview(fit)
    frames = [len(axis.patches) for axis in figure.axes]
    plots.plt.close(figure)
    assert frames.count(len(fit.blocks_)) == plots.WINDOWS_SHOWN


def test_readable_directions_span_the_same_blocks(fit):
    basis = readable_directions(fit)
    for block in fit.blocks_:
        mixed = fit.basis_[:, block].T @ basis[:, block]
        np.testing.assert_allclose(mixed @ mixed.T, np.eye(len(block)), atol=1e-10)


@pytest.mark.parametrize("p", [1, 2, pytest.param(30, marks=pytest.mark.slow)])
def test_every_size_can_be_drawn(p, tmp_path):
    found = fit_of_dimension(p)
    for name, figure in (
        ("overview", plots.overview(found)),
        ("paths", found.plot(most=24)[0].figure),
    ):
        assert plots.save(figure, tmp_path / name, ["png"])[0].exists()


def test_an_unknown_theme_is_refused(fit):
    with pytest.raises(ib.InputError, match="theme must be one of 'light', 'dark'"):
        plots.overview(fit, theme_name="sepia")


def test_a_regret_chart_marks_means_and_worst_runs_where_they_are():
    rows = {
        "calm": {"LinUCB": (50.0, 80.0), "AutoISD": (5.0, 12.0)},
        "jump": {"LinUCB": (60.0, 90.0)},
    }
    (axis,) = plots.regret_chart(rows).axes
    means = {
        line.get_label(): line.get_xdata().tolist()
        for line in axis.lines
        if line.get_label() in rows["calm"]
    }
    assert means == {"LinUCB": [50.0, 60.0], "AutoISD": [5.0]}
    spans = {
        tuple(segment[:, 0])
        for bundle in axis.collections
        for segment in bundle.get_segments()
    }
    assert spans == {(50.0, 80.0), (60.0, 90.0), (5.0, 12.0)}
    assert [label.get_text() for label in axis.get_yticklabels()] == ["calm", "jump"]
    shapes = {line.get_marker() for line in axis.lines if line.get_label() in means}
    assert len(shapes) == 2


def test_more_policies_than_can_be_told_apart_are_refused():
    with pytest.raises(ib.InputError, match="rows must hold 1 to 6 policies, got 7"):
        plots.regret_chart({"row": {f"policy {k}": (1.0, 2.0) for k in range(7)}})


def test_gains_losses_and_doubts_differ_in_colour_and_shape():
    rows = {
        "better": (1.0, 0.5, 1.5),
        "unclear": (0.1, -0.4, 0.6),
        "worse": (-1.0, -1.5, -0.5),
    }
    axis = plotting.difference_chart(rows)
    plots.plt.close(axis.figure)
    marks = {
        line.get_marker(): line.get_color()
        for line in axis.lines
        if line.get_marker() in "osD"
    }
    assert set(marks) == {"o", "D", "s"}
    assert len(set(marks.values())) == 3
    assert [label.get_text() for label in axis.get_yticklabels()] == list(rows)


def test_paths_have_gaps_where_windows_are_silent_and_tables_say_so(tmp_path):
    rng = np.random.default_rng(5)
    features = rng.normal(size=(1200, 2)) * np.repeat(
        rng.uniform(0.5, 2.0, (4, 2)), 300, axis=0
    )
    features[-300:, 1] = 0.0
    rewards = features @ [1.0, -1.0] + rng.normal(size=1200)
    silent = ib.InvariantSubspaceDecomposition(blocks=[[0], [1]]).fit(
        features, rewards, windows=4
    )
    gaps = [np.isnan(axis.lines[1].get_ydata()).tolist() for axis in silent.plot()]
    assert sorted(gaps) == [[False] * 4, [False] * 3 + [True]]
    last = {
        feature["name"]: feature["last_error"] for feature in values.features(silent)
    }
    assert last["x1"] is None
    assert last["x0"] > 0.0
    plots.overview(silent).savefig(tmp_path / "overview.svg")
