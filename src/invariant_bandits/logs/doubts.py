"""Doubts: names and values of a log that may mean something else than they seem to."""

from __future__ import annotations

import re
import shlex

import numpy as np

from invariant_bandits.checks import Array

WORDS = re.compile(r"[A-Z]+(?![a-z])|[^\W\d_A-Z]+|[A-Z][^\W\d_A-Z]+")
"""Words that a name consists of, in any alphabet."""
LESS_IS_BETTER = (
    "pain cost costs expense expenses spend latency delay delays lateness waiting wait error errors mistakes"
    " rmse mse mae churn churned days loss losses refund refunds refunded complaint complaints mortality"
    " death deaths readmission readmitted relapse defects defect failures crash crashes downtime runtime"
    " regret penalty fraud abandonment abandoned unsubscribed unsubscribe bounce bounced",
    "schmerz schmerzen kosten latenz fehler verlust verluste verzögerung verspätung erstattung retoure"
    " retouren abwanderung kündigung gekündigt reklamation wartezeit ausfall ausfälle tage",
    "douleur coût cout coûts erreur erreurs perte pertes retard remboursement attente jours plainte",
    "dolor costo coste costos latencia errores pérdida perdida retraso reembolso espera queja días",
    "dolore costi errore errori perdita ritardo rimborso abbandono attesa giorni reclamo",
    "dor custo custos erro erros perda atraso dias reclamação",
    "pijn fout fouten verlies vertraging terugbetaling wachttijd dagen klacht",
)
"""Words in the names of rewards of which less is better, most likely: English, German, French, Spanish,
Italian, Portuguese, Dutch.
"""
MORE_IS_BETTER = (
    "no not non free saved saving savings reduction reduced avoided without negative neg minus retained"
    " active survived survival until to uptime improvement relief"
)
"""Words beside them that say the opposite."""
AMOUNTS = (
    "price prices preis preise prix precio prezzo preço prijs amount betrag montant dose dosis dosage"
    " dosering discount rabatt remise descuento sconto korting bid gebot budget premium premie"
    " temperature temperatur"
)
"""Words in the names of columns whose whole numbers are amounts, not labels."""
TIMES = (
    "time duration seconds minutes hours secs mins hrs aht"
    " zeit dauer sekunden minuten stunden"
)
ENGAGED = (
    "watch watched watching view viewed viewing session dwell engagement engaged play played playing"
    " listen listened listening read reading visit stay spent site active usage sleep"
)
RESOLVED = "resolution resolve resolved repair delivery completion answer reply respond"
"""Words in the names of rewards for a time, of which less is better; words beside them that say that more of
it is better; and words beside "to" that say that less is.
"""
OUTCOMES = (
    "conversion conversions converted cost costs dwell elapsed handle handled handling latency outcome paid"
    " payout profit refund refunded resolution resolved revenue settled spend"
    " dauer erlös gewinn kosten umsatz"
)
"""Words in the names of columns that are mostly known only after a choice."""
WORTH = (
    "amount earnings margin net payout profit revenue sales value worth"
    " betrag deckungsbeitrag erlös gewinn umsatz"
)
"""Words in the names of columns that say what an outcome is worth."""
MOST_AMOUNTS = 50
"""Different whole amounts beyond which they are no labels."""


def less_is_better(name: str) -> bool:
    """Whether the name of a reward suggests that less of it is better.

    >>> less_is_better("pain_week8"), less_is_better("Kosten (EUR)"), less_is_better("days_to_churn")
    (True, True, False)
    >>> less_is_better("handle_time_s"), less_is_better("hours to resolution"), less_is_better("watch_time")
    (True, True, False)
    """
    words = _words(name)
    low = {word for line in LESS_IS_BETTER for word in line.split()}
    is_time = (
        bool(words & set(TIMES.split())) and "on" not in words
    )  # on time, time on page
    if is_time and words & set(RESOLVED.split()):
        return True
    if is_time and words & set(ENGAGED.split()):
        return False
    return (is_time or bool(words & low)) and not words & set(MORE_IS_BETTER.split())


def names_amount(name: str) -> bool:
    """Whether the name of a column says that its numbers are amounts, not labels.

    >>> names_amount("unitPrice"), names_amount("item")
    (True, False)
    """
    return bool(_words(name) & set(AMOUNTS.split()))


def names_outcome(name: str) -> bool:
    """Whether the name of a column suggests that its values are known only after a choice.

    >>> names_outcome("Hours to resolution"), names_outcome("hours_played")
    (True, False)
    """
    return bool(_words(name) & set(OUTCOMES.split()))


def names_worth(name: str) -> bool:
    """Whether the name of a column suggests that it says what an outcome is worth.

    >>> names_worth("revenue_micros"), names_worth("dwell_seconds")
    (True, False)
    """
    return bool(_words(name) & set(WORTH.split()))


def _words(name: str) -> set[str]:
    """The words that a name consists of, in lower case."""
    return {word.lower() for word in WORDS.findall(name)}


SENTINEL_SHARES = (0.001, 0.4)
SENTINEL_ROWS = 5
FEWEST_OTHERS = 10
"""Least and greatest share, and least number, of rows with a value that stands for a missing one, and
different other values that a column must have for one of them to lie far outside.
"""


def sentinel(values: Array) -> tuple[float, float, float, float] | None:
    """Return (value, its share, least and greatest other value) if one value far outside is often repeated.

    Far outside: further from the nearest other value than these are from each other, and not 0.

    >>> import numpy as np
    >>> sentinel(np.append(np.linspace(3.0, 80.0, 99), np.full(6, -999.0)))
    (-999.0, 0.05714285714285714, 3.0, 80.0)
    """
    values = values[np.isfinite(values)]
    levels, counts = np.unique(values, return_counts=True)
    if len(levels) <= FEWEST_OTHERS:
        return None
    low, high = SENTINEL_SHARES
    for place, others in ((0, levels[1:]), (-1, levels[:-1])):
        value, count = float(levels[place]), int(counts[place])
        share = count / len(values)
        gap = min(abs(value - others[0]), abs(value - others[-1]))
        if (
            value != 0.0
            and count >= SENTINEL_ROWS
            and low <= share <= high
            and gap > np.ptp(others)
        ):
            return value, share, float(others[0]), float(others[-1])
    return None


def sentinel_words(
    name: str, value: float, share: float, least: float, most: float
) -> str:
    """Return what is said of the value that `sentinel` returns."""
    where = f"far outside its other values ({least:.4g} to {most:.4g})"
    return (
        f"{name!r} is {value:g} in {100 * share:.2g} % of the first rows, {where}: if that stands for"
        f" a missing value, say --missing={shlex.quote(f'{name}={value:g}')}"
    )
