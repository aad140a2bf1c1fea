"""Every call of the protocol."""

from __future__ import annotations

from starlette.routing import Route

from invariant_bandits.service.protocols.personalizer import evaluations, events, loop
from invariant_bandits.service.responses import Handler

CALLS: list[tuple[str, str, Handler]] = [
    ("POST", "/rank", events.rank),
    ("POST", "/multislot/rank", events.rank_slots),
    ("POST", "/multislot/events/{id:path}/reward", events.reward_slots),
    ("POST", "/multislot/events/{id:path}/activate", events.activate),
    ("POST", "/events/{id:path}/reward", events.reward),
    ("POST", "/events/{id:path}/activate", events.activate),
    ("GET", "/configurations/service", loop.show),
    ("PUT", "/configurations/service", loop.change),
    ("GET", "/configurations/policy", loop.show_settings),
    ("PUT", "/configurations/policy", loop.change_settings),
    ("DELETE", "/configurations/policy", loop.reset_settings),
    ("POST", "/configurations/applyFromEvaluation", evaluations.apply),
    ("GET", "/model", loop.export),
    ("PUT", "/model", loop.replace),
    ("DELETE", "/model", loop.reset),
    ("GET", "/model/properties", loop.properties),
    ("DELETE", "/logs", loop.delete_logs),
    ("GET", "/logs/properties", loop.log_properties),
    ("GET", "/evaluations", evaluations.show_all),
    ("POST", "/evaluations", evaluations.make),
    ("PUT", "/evaluations/{id:path}", evaluations.make),
    ("GET", "/evaluations/{id:path}", evaluations.show),
    ("DELETE", "/evaluations/{id:path}", evaluations.delete),
    ("GET", "/featureImportances", evaluations.show_all_importances),
    ("PUT", "/featureImportances/{id:path}", evaluations.make_importances),
    ("GET", "/featureImportances/{id:path}", evaluations.show_importances),
    ("DELETE", "/featureImportances/{id:path}", evaluations.delete_importances),
]
ROUTES = [Route(f"/{{door:personalizer}}{path}", handler, methods=[method]) for method, path, handler in CALLS]
