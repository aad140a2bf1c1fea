"""Names of columns: which words they consist of, and what these suggest about the values."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


NAMES = {
    "time": "time timestamp ts datetime date event_time event_timestamp event_date time_hour time_stamp"
    " timestamp_ms created_at created logged_at served_at unix_time unixtime epoch at",
    "reward": "reward rewards r y click clicks clicked is_click is_clicked outcome target label conversion"
    " converted is_converted purchase purchased revenue profit sale sold opened response success rating"
    " margin gain payoff won bought booked accepted paid correct thumbs_up liked kpi",
    "propensity": "propensity propensity_score pscore probability prob action_prob action_probability"
    " p_action logging_prob logging_probability logging_propensity chance p",
    "action": "action arm action_id arm_id action_index chosen_action choice",
    "arm": "action arm action_id arm_id chosen_action chosen_arm choice banner banner_id variant variant_id"
    " variation treatment treatment_id offer offer_id creative creative_id item item_id ad ad_id policy"
    " recommendation article article_id dose price_level price_point trt treated algorithm alg strategy"
    " template layout group cell bucket",
    "arms_offered": "arms_offered offered_arms available_arms candidate_arms arms offered_actions"
    " available_actions offered candidates choices",
    "position": "position slot pos",
    "round": "round round_id event_id impression_id request_id decision_id",
    "chosen": "chosen is_chosen selected is_selected shown picked taken",
    "offered": "offered offered_features candidates actions_features choices",
    "rewards": "offered_rewards all_rewards rewards_offered",
    "ranking": "",
}
"""Usual names of columns by role, the likeliest first; roles are found in this order."""
ROLES = tuple(NAMES)

WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[^\W\d_A-Z]+|[A-Z][^\W\d_A-Z]+|\d+")
"""Words that a name consists of, in any alphabet, and its numbers."""
VAGUE_WORDS = _word_set(
    "r y p rating target label item policy choice choices arms candidates created"
    " group cell bucket"
)
"""Usual names that say nothing as a part of a longer one, such as driver_rating."""
UNITS = _word_set(
    "eur usd gbp chf cents pct percent mg ml kg km mm ms s sec seconds min minutes"
    " hours days utc gmt"
)
PAST_WORDS = _word_set(
    "past previous prior last earlier avg mean total num count history lifetime"
    " since before"
)
"""Words in the names of columns that sum up what happened before a round."""
UNWANTED = _word_set(
    "bounced cancelled canceled churned complained declined escalated failed"
    " refunded returned skipped"
)
"""Participles of what is not wanted: more of it is not a better reward."""
DECIDED = _word_set(
    "assigned exposed offered selected sent served shown targeted treated"
)
"""Participles of what was decided, not of what came of it."""
DECISIONS = _word_set(
    "assignment booking call decision delivery email event exposure impression log"
    " mail message notification order prompt push quote record request row send span"
    " ticket trace transaction"
)
"""Words in the names of columns whose values identify one decision, before id, uuid or guid."""
IDENTIFIERS = _word_set("id uuid guid")
POSITIONS = _word_set("position pos slot rank place")
"""Last words in the names of columns that may hold the position of an item in a ranking."""
PARTICIPLE = re.compile(r"(?i)[a-z]{2}ed$")
NUMBER_OF_A_THING = re.compile(r"(?i)(number|no|nr|key|code)$")
"""Ends of the names of columns that identify if their values hardly ever come twice."""
IDENTIFIES = re.compile(
    r"(?i)^(id|index|uuid|guid|rowid)$|[_. ](id|uuid)$|^__|(?-i:[a-z](Id|ID|Uuid|UUID)$)"
)
UNIT_NAMES = {
    "probability": re.compile(""),
    "percent": re.compile(r"(?i)%|pct|percent|prob|chance|propens|(^|_)p(_|$)"),
    "weight": re.compile(r"(?i)ipw|ips|weight|wt|inv|importance"),
    "log": re.compile(r"(?i)log"),
}
"""What the name of a column of propensities has in it, by their unit."""
LEAST_ABBREVIATION = 4
"""Letters of the last word of a name that may abbreviate a reward: of three, rev could be a review."""
LESS_IS_BETTER = _word_set(
    "pain cost costs expense expenses spend latency delay delays lateness waiting"
    " wait error errors mistakes rmse mse mae churn churned days loss losses refund"
    " refunds refunded complaint complaints mortality death deaths readmission"
    " readmitted relapse defects defect failures crash crashes downtime runtime"
    " regret penalty fraud abandonment abandoned unsubscribed unsubscribe bounce"
    " bounced peak load consumption emission emissions waste scrap rework claims"
    " accident accidents incident incidents injury injuries default defaults arrears"
    " overdue verbrauch spitzenlast emissionen ausschuss unfälle schaden schäden"
    " schmerz schmerzen kosten latenz fehler verlust verluste verzögerung"
    " verspätung erstattung retoure retouren abwanderung kündigung gekündigt"
    " reklamation wartezeit ausfall ausfälle tage douleur coût cout coûts erreur"
    " erreurs perte pertes retard remboursement attente jours plainte dolor costo"
    " coste costos latencia errores pérdida perdida retraso reembolso espera queja"
    " días dolore costi errore errori perdita ritardo rimborso abbandono attesa"
    " giorni reclamo dor custo custos erro erros perda atraso dias reclamação pijn"
    " fout fouten verlies vertraging terugbetaling wachttijd dagen klacht"
)
"""Words in the names of rewards of which less is better, most likely: English, German, French, Spanish,
Italian, Portuguese, Dutch.
"""
MORE_IS_BETTER = _word_set(
    "no not non free saved saving savings reduction reduced avoided without"
    " negative neg minus retained active survived survival until to uptime"
    " improvement relief"
)
"""Words beside them that say the opposite."""
AMOUNTS = _word_set(
    "price prices preis preise prix precio prezzo preço prijs amount betrag montant"
    " dose dosis dosage dosering discount rabatt remise descuento sconto korting bid"
    " gebot budget premium premie temperature temperatur"
)
"""Words in the names of columns whose whole numbers are amounts, not labels."""
TIMES = _word_set(
    "time duration seconds minutes hours secs mins hrs aht zeit dauer sekunden"
    " minuten stunden"
)
ENGAGED = _word_set(
    "watch watched watching view viewed viewing session dwell engagement engaged"
    " play played playing listen listened listening read reading visit stay spent"
    " site active usage sleep"
)
RESOLVED = _word_set(
    "resolution resolve resolved repair delivery completion answer reply respond"
)
"""Words in the names of rewards for a time, of which less is better; words beside them that say that more of
it is better; and words beside "to" that say that less is.
"""
OUTCOMES = _word_set(
    "conversion conversions converted cost costs dwell elapsed handle handled"
    " handling latency outcome paid payout profit refund refunded resolution"
    " resolved revenue settled spend dauer erlös gewinn kosten umsatz"
)
"""Words in the names of columns that are mostly known only after a choice."""
WORTH = _word_set(
    "amount earnings margin net payout profit revenue sales value worth betrag"
    " deckungsbeitrag erlös gewinn umsatz"
)
"""Words in the names of columns that say what an outcome is worth."""


def name_words(name: str) -> list[str]:
    """Return the words that a name consists of, in lower case.

    >>> name_words("unitPrice"), name_words("Kündigung_7d")
    (['unit', 'price'], ['kündigung', '7', 'd'])
    """
    return [word.lower() for word in WORDS.findall(name)]


def has_word(name: str, words: AbstractSet[str]) -> bool:
    """Whether one of the words is a part of a name.

    >>> has_word("Hours to resolution", OUTCOMES), has_word("hours_played", OUTCOMES)
    (True, False)
    """
    return not words.isdisjoint(name_words(name))


def less_is_better(name: str) -> bool:
    """Whether the name of a reward suggests that less of it is better.

    >>> less_is_better("pain_week8"), less_is_better("Kosten (EUR)"), less_is_better("days_to_churn")
    (True, True, False)
    >>> less_is_better("handle_time_s"), less_is_better("hours to resolution"), less_is_better("watch_time")
    (True, True, False)
    """
    words = set(name_words(name))
    # "on time" is good, and so is more "time on page".
    is_time = bool(words & TIMES) and "on" not in words
    if is_time and words & RESOLVED:
        return True
    if is_time and words & ENGAGED:
        return False
    return (is_time or bool(words & LESS_IS_BETTER)) and not words & MORE_IS_BETTER


def identifies(name: str) -> bool:
    """Whether the name of a column says that it only identifies rows."""
    return IDENTIFIES.search(name) is not None


def identifies_decisions(name: str) -> bool:
    """Whether a name says that a column identifies decisions, not people or things."""
    words = set(name_words(name))
    return not words.isdisjoint(IDENTIFIERS) and words <= DECISIONS | IDENTIFIERS


def usual_name(column: str, role: str) -> str | None:
    """Return the usual name of a role that a longer name ends in; None if there is none.

    Units at the end do not count. The name of a reward may begin with the usual one, and its last word may
    be the first four or more letters of it.

    >>> [usual_name(name, "reward") for name in ("feedback.click", "profit_eur", "resp", "past_purchase")]
    ['click', 'profit', 'response', None]
    >>> usual_name("subject_variant", "arm"), usual_name("sentAt", "time")
    ('variant', 'at')
    """
    words = name_words(column)
    while len(words) > 1 and words[-1] in UNITS:
        words.pop()
    is_reward = role == "reward"
    if not words or (is_reward and not PAST_WORDS.isdisjoint(words)):
        return None
    usual = [name for name in NAMES[role].split() if name not in VAGUE_WORDS]
    ends = ["_".join(words[first:]) for first in range(len(words))]
    if is_reward:
        ends.append(words[0])  # as in bought_offer
        if len(words[-1]) >= LEAST_ABBREVIATION:
            ends += [name for name in usual if name.startswith(words[-1])]
    return next((end for end in ends if end in usual), None)
