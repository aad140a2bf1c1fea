"""Logs that are opened and read in one call."""

from invariant_bandits.logs.aggregation import LogitWeights
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.scan import open_scan
from invariant_bandits.logs.schema import named_features


def read_schema(source, schema=None):
    return open_log(source, schema).schema


def read_moments(source, schema=None, *, features=None, logit_at=None, **how):
    """Moments of a log; with `logit_at`, those of a logistic regression linearised there."""
    schema, features = named_features(schema, features)
    log = open_log(source, schema)
    if logit_at is None:
        return log.moments(features=features, **how)
    return open_scan(log, **how).moments(features, LogitWeights.at(features, logit_at))


def read_rounds(source, schema=None, features=None, **how):
    return open_log(source, schema).rounds(features, **how)


def read_feedback(source, schema=None, *, features=None, **how):
    schema, features = named_features(schema, features)
    return open_log(source, schema).feedback(features=features, **how)
