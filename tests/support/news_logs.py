"""A log of news articles that come and go, with a catalogue: one effect of the readers breaks for one topic."""

import numpy as np
import pandas as pd

TOPICS = ("culture", "politics", "science", "sport")
BREAK = 0.6
"""Share of the log after which sport loses the readers who like it."""
SCHEMA = {
    "arm": "article",
    "reward": "clicked",
    "time": "time",
    "propensity": "propensity",
}


def news_log(seed, rounds=20_000, articles=40, columns=8, step=0.8):
    """(log, catalogue): clicks on 40 articles; `step` is taken off the log-odds of interest × sport at the
    break.
    """
    rng = np.random.default_rng(seed)
    share = np.arange(rounds) / rounds
    topic = np.arange(articles) % 4
    begin = np.where(np.arange(articles) % 2, rng.uniform(0.0, 0.6, articles), 0.0)
    active = (share[:, None] >= begin) & (
        share[:, None] < begin + rng.uniform(0.4, 1.2, articles)
    )
    active[:, :4] = True
    shown = (active * rng.random((rounds, articles))).argmax(axis=1)
    readers = rng.normal(size=(rounds, columns))
    of_topics = rng.normal(0.0, 0.3, (4, columns))
    of_topics[3, 0] = 0.6
    slopes = rng.normal(0.0, 0.2, columns) + of_topics[topic[shown]]
    slopes[:, 0] -= step * (topic[shown] == 3) * (share >= BREAK)
    odds = rng.normal(-1.2, 0.3, articles)[shown] + (readers * slopes).sum(axis=1)
    names = ["interest", *(f"column_{j}" for j in range(1, columns))]
    labels = np.array([f"article {j:02}" for j in range(articles)])
    log = pd.DataFrame(
        {
            "time": np.datetime64("2024-01-01", "us")
            + (share * 80 * 86_400_000_000).astype("timedelta64[us]"),
            "article": labels[shown],
            "clicked": (rng.random(rounds) < 1.0 / (1.0 + np.exp(-odds))).astype(int),
            "propensity": 1.0 / active.sum(axis=1),
            **dict(zip(names, readers.T, strict=True)),
        }
    )
    catalogue = {
        "article": labels,
        "topic": np.array(TOPICS)[topic],
        "length": rng.normal(size=articles),
    }
    return log, pd.DataFrame(catalogue)
