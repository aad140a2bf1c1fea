"""Every operation of the protocol: method, path, role, handler, body, status, its name for invalid
requests.
"""

from __future__ import annotations

from invariant_bandits.service.access import Role
from invariant_bandits.service.operations import Handler, Operation
from invariant_bandits.service.protocols.personalizer import bodies, evaluations, events, loop

Row = tuple[str, str, Role, Handler, type | None, int, str]
CONTRACT, REWARD, RANK = "InvalidEvaluationContract", "InvalidRewardRequest", "InvalidRankRequest"
IMPORTANCES, POLICY = "/featureImportances/{id:path}", "/configurations/policy"
ROWS: tuple[Row, ...] = (
    ("POST", "/rank", "decide", events.rank, bodies.RankRequest, 201, RANK),
    ("POST", "/multislot/rank", "decide", events.rank_slots, bodies.SlotsRequest, 201, RANK),
    (
        "POST",
        "/multislot/events/{id:path}/reward",
        "decide",
        events.reward_slots,
        bodies.SlotRewards,
        204,
        REWARD,
    ),
    ("POST", "/multislot/events/{id:path}/activate", "decide", events.activate, None, 204, ""),
    ("POST", "/events/{id:path}/reward", "decide", events.reward, bodies.EventReward, 204, REWARD),
    ("POST", "/events/{id:path}/activate", "decide", events.activate, None, 204, ""),
    ("GET", "/configurations/service", "read", loop.show, None, 200, ""),
    (
        *("PUT", "/configurations/service", "admin", loop.change),
        *(bodies.ServiceConfiguration, 200, "InvalidServiceConfiguration"),
    ),
    ("GET", POLICY, "read", loop.show_settings, None, 200, ""),
    (
        "PUT",
        POLICY,
        "admin",
        loop.change_settings,
        bodies.LearningSettings,
        200,
        "InvalidPolicyConfiguration",
    ),
    ("DELETE", POLICY, "admin", loop.reset_settings, None, 200, ""),
    (
        *("POST", "/configurations/applyFromEvaluation", "admin", evaluations.apply),
        *(bodies.PolicyReference, 204, "InvalidPolicyContract"),
    ),
    ("GET", "/model", "admin", loop.export, None, 200, ""),
    ("PUT", "/model", "admin", loop.replace, bytes, 204, ""),
    ("DELETE", "/model", "admin", loop.reset, None, 204, ""),
    ("GET", "/model/properties", "read", loop.properties, None, 200, ""),
    ("DELETE", "/logs", "admin", loop.delete_logs, None, 204, ""),
    ("GET", "/logs/properties", "read", loop.log_properties, None, 200, ""),
    ("GET", "/evaluations", "read", evaluations.show_all, None, 200, ""),
    ("POST", "/evaluations", "admin", evaluations.make, bodies.EvaluationRequest, 201, CONTRACT),
    ("PUT", "/evaluations/{id:path}", "admin", evaluations.make, bodies.EvaluationRequest, 200, CONTRACT),
    ("GET", "/evaluations/{id:path}", "read", evaluations.show, None, 200, CONTRACT),
    ("DELETE", "/evaluations/{id:path}", "admin", evaluations.EVALUATIONS.delete, None, 204, ""),
    ("GET", "/featureImportances", "read", evaluations.show_all_importances, None, 200, ""),
    (
        "PUT",
        IMPORTANCES,
        "admin",
        evaluations.make_importances,
        bodies.ImportanceRequest,
        200,
        "InvalidRequest",
    ),
    ("GET", IMPORTANCES, "read", evaluations.show_importances, None, 200, ""),
    ("DELETE", IMPORTANCES, "admin", evaluations.IMPORTANCES.delete, None, 204, ""),
)
OPERATIONS = tuple(
    Operation(
        method,
        f"/{{endpoint:personalizer}}{path}",
        role,
        handler,
        () if body is None else (body,),
        status=status,
        invalid=invalid,
        model_of=events.model_of,
    )
    for method, path, role, handler, body, status, invalid in ROWS
)
