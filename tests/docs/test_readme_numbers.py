"""Every number of README comes from a result file or a study's page, and says what stands there."""

import ast
import json
import operator
import re
import tomllib

import pytest

import pages

README = pages.ROOT / "README.md"
FIGURES = pages.ROOT / "docs" / "figures"
NUMBERS = tomllib.loads((pages.ROOT / "docs" / "readme_numbers.toml").read_text())[
    "numbers"
]
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?")
PICTURES = ("dimension", "logged-rounds", "violated-invariance")
LINUCB, AUTO = "LinUCB", "AutoISD"


def joined(text):
    """Return text on one line, for words that a line break may cut."""
    return " ".join(text.split())


def prose(page=README):
    """A page's sentences on one line; addresses of links and code are left out, for they are not claims."""
    lines = (line for _, line in pages.prose(page) if not line.startswith("#"))
    return without_links(joined("\n".join(lines)))


def without_links(text):
    return re.sub(r"\]\([^)]*\)", "]", text)


def numbers_in(text):
    return [number.replace(",", "") for number in NUMBER.findall(text)]


def points(name):
    stored = json.loads((FIGURES / f"{name}.json").read_text())
    return list(stored["points"])


def mean_of(name, cell, policy, right_dimensions_only=False):
    (point,) = {
        (point["mean"], point["standard_error"])
        for point in points(name)
        if (point["cell"], point["policy"]) == (cell, policy)
        and point["right_dimensions_only"] == right_dimensions_only
    }
    return point


def evaluated(expression):
    """The value of a product or quotient of numbers, and those numbers."""
    does = {ast.Mult: operator.mul, ast.Div: operator.truediv}

    def value(node):
        if isinstance(node, ast.BinOp):
            return does[type(node.op)](value(node.left), value(node.right))
        return node.value

    tree = ast.parse(expression, mode="eval").body
    operands = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return value(tree), [operand for operand in operands if operand != 100]


def counted_peers(page):
    """Worlds in which AutoISD is behind, ahead and level, from the two tables that open the page."""
    opening = page.split("## How it was played")[0]
    rows = [line for line in opening.splitlines() if line.startswith("| ")]
    leads = next(k for k, row in enumerate(rows) if "has the best mean" in row)
    behind = [row for row in rows[1:leads] if "(tie)" not in row]
    ahead = [row for row in rows[leads + 1 :] if "(tie)" not in row]
    count = len(rows) - 2
    level = count - len(behind) - len(ahead)
    assert (
        f"is clearly behind in {len(behind)} of {count} worlds and data sets,"
        f" clearly ahead in {len(ahead)}, and ties in {level}."
    ) in joined(page)
    return {f"{value}" for value in (len(behind), count, len(ahead), level)}


def counted_real(page):
    """Cases in which AutoISD is behind, ahead and level, and the largest deficit."""
    rows = re.findall(
        r"^\| AutoISD, default: at most .*\| ([+−])([\d.]+) ± ([\d.]+) \|", page, re.M
    )
    behind = [
        row for row in rows if row[0] == "−" and float(row[1]) > 2 * float(row[2])
    ]
    ahead = [row for row in rows if row[0] == "+" and float(row[1]) > 2 * float(row[2])]
    _, most, error = max(behind, key=lambda row: float(row[1]))
    level = len(rows) - len(behind) - len(ahead)
    assert (
        most
        == max((row for row in rows if row[0] == "−"), key=lambda r: float(r[1]))[1]
    )
    counts = {f"{value}" for value in (len(rows), len(behind), len(ahead), level)}
    return counts | {most, error}


COUNTED = {"peers": counted_peers, "real": counted_real}


def from_page(entry):
    """The numbers that the page of an entry confirms."""
    page = (pages.ROOT / entry["page"]).read_text()
    if "counted" in entry:
        return COUNTED[entry["counted"]](page)
    lines = " ".join(entry["lines"])
    for line in entry["lines"]:
        assert line in joined(page), f"{entry['page']} does not say {line!r}"
    confirmed = set(numbers_in(lines))
    for number, expression in entry.get("computed", {}).items():
        value, operands = evaluated(expression)
        assert {float(text) for text in confirmed} >= set(operands)
        digits = len(number.partition(".")[2])
        assert f"{value:.{digits}f}" == number
        confirmed.add(number)
    return confirmed


def from_figure(entry):
    """The numbers that the file beside a picture confirms."""
    if entry["figure"] == "every":
        replications = {
            json.loads((FIGURES / f"{name}.json").read_text())["replications"]
            for name in PICTURES
        }
        return {str(*replications)}
    if entry.get("cells") == "all":
        means = [
            point["mean"]
            for point in points(entry["figure"])
            if point["policy"] == entry["policy"]
        ]
        return {f"{min(means):.1f}", f"{max(means):.1f}"}
    mean, error = mean_of(
        entry["figure"],
        entry["cell"],
        entry["policy"],
        entry.get("right_dimensions_only", False),
    )
    return {f"{mean:.1f}", f"{error:.1f}"}


@pytest.mark.parametrize("entry", NUMBERS, ids=lambda entry: entry["says"][:40])
def test_a_number_of_the_readme_is_that_of_its_result(entry):
    if "given" in entry:
        return
    confirmed = from_figure(entry) if "figure" in entry else from_page(entry)
    for number in numbers_in(entry["says"]):
        assert number in confirmed, f"{number} is not among {sorted(confirmed)}"


def test_every_number_of_the_readme_has_a_source():
    text = prose()
    for entry in NUMBERS:
        says = without_links(entry["says"])
        assert says in text, f"README does not say {says!r}"
        text = text.replace(says, "…")
    rest = [text[max(0, m.start() - 60) : m.end() + 20] for m in NUMBER.finditer(text)]
    assert rest == []


def test_the_first_page_of_the_site_has_no_number_that_the_readme_has_not():
    known = {number for entry in NUMBERS for number in numbers_in(entry["says"])}
    assert set(numbers_in(prose(pages.ROOT / "docs" / "index.md"))) <= known


@pytest.mark.parametrize(
    "entry",
    [entry for entry in NUMBERS if "page" in entry],
    ids=lambda entry: entry["says"][:40],
)
def test_a_number_stands_in_a_paragraph_that_links_to_its_page(entry):
    paragraphs = re.split(r"\n\n|\n- ", README.read_text())
    (home,) = [
        paragraph
        for paragraph in map(joined, paragraphs)
        if without_links(entry["says"]) in without_links(paragraph)
    ]
    assert f"]({entry['page']})" in home


def test_the_least_coverage_on_the_pages_is_in_the_readme():
    """No page has a lower coverage than the lowest that README names."""
    randomised = (pages.ROOT / "docs/studies/randomised.md").read_text()
    rows = re.findall(r"\| ([\d.]{5}), ([\d.]{5}) \|", randomised)
    assert min(float(value) for row in rows for value in row) == 0.873
    intervals = (pages.ROOT / "docs/studies/intervals.md").read_text()
    table = intervals.split("## All estimators")[0].split("The goal is a coverage")[1]
    assert min(map(float, re.findall(r"\| ([\d.]{5}) \(", table))) == 0.927


def test_the_worst_second_half_is_the_one_that_the_readme_names():
    real = (pages.ROOT / "docs/studies/real.md").read_text()
    rows = re.findall(
        r"^\| ([^|]+), second half \| [^|]+ \| ([\d.]+) ± [\d.]+ \| ([+−])([\d.]+) ±",
        real,
        re.M,
    )
    shares = {
        name: (-1 if sign == "−" else 1) * float(gap) / float(gain)
        for name, gain, sign, gap in rows
    }
    assert len(shares) == 8
    assert min(shares, key=shares.get) == "Chicago L"


def series(name, policy):
    return [point["mean"] for point in points(name) if point["policy"] == policy]


def rises(name, policy):
    means = series(name, policy)
    return means == sorted(means)


def below(name, policy, rival, factor=1.0):
    pairs = zip(series(name, policy), series(name, rival), strict=True)
    return all(mine < factor * other for mine, other in pairs)


CAPTIONS = {
    "LinUCB learns all effects again, so its regret grows with every feature.": lambda: (
        rises("dimension", LINUCB)
    ),
    "AutoISD has to find out, and its regret is below LinUCB's for every number of features.": lambda: (
        below("dimension", AUTO, LINUCB)
    ),
    "its regret is less than half of LinUCB's.": lambda: below(
        "violated-invariance", AUTO, LINUCB, 0.5
    ),
}


@pytest.mark.parametrize("words", CAPTIONS)
def test_what_a_caption_says_of_its_picture_holds_in_its_numbers(words):
    assert words in prose()
    assert CAPTIONS[words]()
