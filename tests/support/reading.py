"""Logs that are opened and read in one call."""

from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.scan import open_scan
from invariant_bandits.logs.schema import named_features


def read_schema(source, schema=None):
    return open_log(source, schema).schema


def read_moments(source, schema=None, *, features=None, **how):
    schema, features = named_features(schema, features)
    return open_log(source, schema).moments(features=features, **how)


def read_clicks(source, features, theta, **how):
    """Moments per arm of a log of clicks, linearised about θ."""
    return open_scan(open_log(source), **how).click_moments(features, theta)


def read_rounds(source, schema=None, features=None, **how):
    return open_log(source, schema).rounds(features, **how)


def read_feedback(source, schema=None, *, features=None, **how):
    schema, features = named_features(schema, features)
    return open_log(source, schema).feedback(features=features, **how)
