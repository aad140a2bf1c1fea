"""Every call of the protocol."""

from __future__ import annotations

from starlette.routing import Route

from invariant_bandits.service.http import Handler
from invariant_bandits.service.protocols.personalizer import evaluations, events, importances, models, rules

CALLS: list[tuple[str, str, Handler]] = [
    ("POST", "/rank", events.rank),
    ("POST", "/multislot/rank", events.rank_slots),
    ("POST", "/multislot/events/{id:path}/reward", events.reward_slots),
    ("POST", "/multislot/events/{id:path}/activate", events.activate),
    ("POST", "/events/{id:path}/reward", events.reward),
    ("POST", "/events/{id:path}/activate", events.activate),
    ("GET", "/configurations/service", rules.show),
    ("PUT", "/configurations/service", rules.change),
    ("GET", "/configurations/policy", rules.show_settings),
    ("PUT", "/configurations/policy", rules.change_settings),
    ("DELETE", "/configurations/policy", rules.reset_settings),
    ("POST", "/configurations/applyFromEvaluation", evaluations.apply),
    ("GET", "/model", models.export),
    ("PUT", "/model", models.replace),
    ("DELETE", "/model", models.reset),
    ("GET", "/model/properties", models.properties),
    ("DELETE", "/logs", models.delete_logs),
    ("GET", "/logs/properties", models.log_properties),
    ("GET", "/evaluations", evaluations.show_all),
    ("POST", "/evaluations", evaluations.make),
    ("PUT", "/evaluations/{id:path}", evaluations.make),
    ("GET", "/evaluations/{id:path}", evaluations.show),
    ("DELETE", "/evaluations/{id:path}", evaluations.delete),
    ("GET", "/featureImportances", importances.show_all),
    ("PUT", "/featureImportances/{id:path}", importances.make),
    ("GET", "/featureImportances/{id:path}", importances.show),
    ("DELETE", "/featureImportances/{id:path}", importances.delete),
]
ROUTES = [Route(f"/{{door:personalizer}}{path}", handler, methods=[method]) for method, path, handler in CALLS]
