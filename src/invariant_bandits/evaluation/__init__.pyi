"""Names of `ib.evaluation`, each imported when it is first used."""

from .logged import Feedback as Feedback
