"""The page of a model: figures and tables agree, axes have dates, names are names, and nothing overlaps or is
cut.
"""

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text

import invariant_bandits as ib
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.reports import model_page, plots, values
from invariant_bandits.reports.page import as_text

FEATURES = 34


@pytest.fixture(scope="module")
def model():
    """34 features with long names over twelve weeks, of which two drift."""
    rng = np.random.default_rng(0)
    n = 7200
    x = rng.normal(size=(n, FEATURES)) * np.repeat(
        rng.uniform(0.6, 1.6, (12, FEATURES)), n // 12, axis=0
    )
    slopes = np.tile(rng.normal(size=FEATURES) / 4.0, (n, 1))
    slopes[:, :2] = np.repeat(rng.normal(size=(12, 2)), n // 12, axis=0)
    reward = np.einsum("nd,nd->n", slopes, x) + rng.normal(size=n)
    times = np.datetime64("2024-01-01", "us") + np.arange(n) * np.timedelta64(
        84 * 86400 * 10**6 // n, "us"
    )
    columns = {f"feature_of_column_{j}": x[:, j] for j in range(FEATURES)}
    return ib.fit_logs(
        pa.table({"time": times, "reward": reward} | columns),
        every="7d",
        policy="linucb",
    )


@pytest.fixture(scope="module")
def page(model):
    return model_page.report(model)


@pytest.fixture(scope="module")
def overview(model):
    figure = plots.overview(model.decomposition, edges=model.moments.edges)
    figure.canvas.draw()
    yield figure
    plt.close(figure)


def panels(figure):
    """(axis, name of the direction, what is said of it) of the panels of paths."""
    titles = [(axis, axis.get_title(loc="left").split("\n")) for axis in figure.axes]
    return [
        (axis, *words)
        for axis, words in titles
        if len(words) == 2 and axis.get_visible()
    ]


def test_panels_tables_and_frame_say_the_same(model, overview):
    section = next(
        part
        for part in model_page.sections(model, pictures=True)
        if part.title == "Drift"
    )
    words = [[getattr(cell, "words", cell) for cell in row] for row in section.rows]
    table = {row[0]: row for row in words}
    drawn = panels(overview)
    assert len(drawn) == 12
    assert [name for _, name, _ in drawn] == model.effects().effect.tolist()[:12]
    for _, name, said in drawn:
        verdict, change = table[name][1:3]
        if verdict == "drifts":  # the picture shows the last window as its last point
            assert change.startswith(said)
            assert change == said or change[len(said) :].startswith("; last window ")
        else:
            assert said.startswith(verdict)
    assert [" → " in said for _, _, said in drawn[:3]] == [True, True, False]
    assert {name for _, name, _ in drawn[:2]} == {
        "feature_of_column_0",
        "feature_of_column_1",
    }


def test_the_axis_has_dates_where_times_are_known_and_whole_windows_elsewhere(
    model, overview, page
):
    def labels(figure):
        axis = panels(figure)[-1][0]
        return [
            label.get_text() for label in axis.get_xticklabels() if label.get_text()
        ]

    assert "Feb" in labels(overview)
    plain = model.decomposition.plot(most=24)[0].figure
    plain.canvas.draw()
    assert all(re.fullmatch(r"\d+", words) for words in labels(plain))
    plt.close(plain)
    begins = [window["begins"] for window in values.windows(model.moments)]
    assert begins[1] == np.datetime64("2024-01-08")
    assert "2024-01-08 00:00:00" in page


def test_no_two_labels_overlap(overview):
    (axis,) = [
        item
        for item in overview.axes
        if "share of each feature" in item.get_title(loc="right")
    ]
    boxes = sorted(
        (label.get_window_extent() for label in axis.get_yticklabels()),
        key=lambda box: box.y0,
    )
    assert len(boxes) == plots.MOST_FEATURES
    assert all(lower.y1 <= upper.y0 + 1.0 for lower, upper in itertools.pairwise(boxes))
    titles = [title_box(axis) for axis, *_ in panels(overview)]
    assert not any(
        item.overlaps(other) for item, other in itertools.combinations(titles, 2)
    )


def title_box(axis):
    """Where the title of a panel is drawn, in the middle or on the left."""
    words = axis.get_title() or axis.get_title(loc="left")
    (title,) = [
        text
        for text in axis.get_children()
        if isinstance(text, Text) and text.get_text() == words
    ]
    return title.get_window_extent()


def test_a_column_with_hundreds_of_levels_that_is_left_out_is_one_line():
    one = Dropped("city=299", {f"city={j}": -1.0 for j in range(299)})
    assert (
        str(one)
        == "city=299 = -1·city=0 -1·city=1 -1·city=2 -1·city=3 … and 295 more + a constant per window"
    )


def test_every_table_scrolls_inside_its_own_box_and_pictures_follow_the_screen(page):
    assert (
        page.count("<table>")
        == page.count('<div class="scroll" tabindex="0"><table>')
        > 3
    )
    assert "var(--stable)" in page
    assert "#0072b2" not in page.replace("--stable: #0072b2", "")


def test_the_words_in_the_terminal_say_the_same(model):
    said = as_text("t", "h", model_page.sections(model))
    assert re.search(r"block\s+verdict\s+dim\s+p-value", said)
    assert "2024-01-08 00:00:00" in said


@pytest.mark.parametrize("width", [60, 80, 140])
def test_words_and_tables_fit_the_terminal(model, width):
    lines = model_page.text(model, width=width).splitlines()
    assert 0.6 * width < max(map(len, lines)) <= width
