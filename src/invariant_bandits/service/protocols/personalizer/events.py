"""Rank, reward, activate: for one action, and for several slots."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.events import id_in_group
from invariant_bandits.service.http import RefusedError, answer, check_id, check_values, read
from invariant_bandits.service.protocols.personalizer import deciding
from invariant_bandits.service.protocols.personalizer.doors import loop_of
from invariant_bandits.service.protocols.personalizer.errors import ProtocolError, invalid_as
from invariant_bandits.service.protocols.personalizer.shapes import (
    RankRequest,
    RewardRequest,
    SlotRewards,
    SlotsRequest,
)
from invariant_bandits.service.requests import Given
from invariant_bandits.service.state import NotFoundError
from invariant_bandits.service.work import all_or_none

MOST_SLOTS = 50


@invalid_as("InvalidRankRequest")
async def rank(request: Request) -> Response:
    """Choose one of the actions."""
    service, model = service_of(request, "decide"), loop_of(request)
    asked = await read(request, RankRequest, service.limits)
    _check(asked, service)
    decided = await service.engine.submit(deciding.rank(model, asked))
    told = {"ranking": deciding.ranking(decided), "eventId": decided.id, "rewardActionId": deciding.chosen_id(decided)}
    return answer(told, 201)


@invalid_as("InvalidRankRequest")
async def rank_slots(request: Request) -> Response:
    """Choose an action for each of several slots."""
    service, model = service_of(request, "decide"), loop_of(request)
    asked = await read(request, SlotsRequest, service.limits)
    _check(asked, service)
    if len(asked.slots) > MOST_SLOTS:
        raise RefusedError(422, f"slots: at most {MOST_SLOTS} can be filled, got {len(asked.slots)}", "slots")
    for slot in asked.slots:
        check_values(slot.features, service.limits, "slots")
    filled = await service.engine.submit(deciding.rank_slots(model, asked))
    slots = [{"id": slot, "rewardActionId": deciding.chosen_id(one)} for slot, one in filled.slots]
    return answer({"slots": slots, "eventId": filled.id}, 201)


def _check(asked: RankRequest | SlotsRequest, service: Service) -> None:
    if asked.event_id:
        check_id(asked.event_id, "eventId")
    if len(asked.actions) > service.limits.arms:
        raise RefusedError(
            422, f"actions: at most {service.limits.arms} can be offered, got {len(asked.actions)}", "actions"
        )
    check_values(asked.context_features, service.limits, "contextFeatures")
    check_values([one.features for one in asked.actions], service.limits, "actions")


@invalid_as("InvalidRewardRequest")
async def reward(request: Request) -> Response:
    """What an event earned; also of one that is not known, which is kept."""
    service, model, id = service_of(request, "decide"), loop_of(request), _event(request)
    given = await read(request, RewardRequest, service.limits)
    await service.engine.submit(deciding.reward(Given(id, given.value, _key(request), model)))
    return Response(status_code=204)


@invalid_as("InvalidRewardRequest")
async def reward_slots(request: Request) -> Response:
    """What slots of an event earned."""
    service, model, id = service_of(request, "decide"), loop_of(request), _event(request)
    given = await read(request, SlotRewards, service.limits)
    if len(given.reward) > service.limits.batch:
        raise RefusedError(
            422, f"reward: at most {service.limits.batch} can be sent, got {len(given.reward)}", "reward"
        )
    key = _key(request)
    works = [deciding.reward(Given(id_in_group(id, one.slot_id), one.value, key, model)) for one in given.reward]
    await service.engine.submit(all_or_none(works))
    return Response(status_code=204)


async def activate(request: Request) -> Response:
    """An event, or all slots of one, were shown."""
    service, model, id = service_of(request, "decide"), loop_of(request), _event(request)
    try:
        await service.engine.submit(deciding.activate(id, model))
    except NotFoundError as error:
        raise ProtocolError(400, "InvalidEventIdToActivate", str(error), "eventId") from None
    return Response(status_code=204)


def _event(request: Request) -> str:
    return check_id(request.path_params["id"], "eventId")


def _key(request: Request) -> str | None:
    """What a client that repeats a call repeats with it."""
    key = request.headers.get("x-ms-client-request-id", "")
    return key if 0 < len(key) <= 256 and key.isprintable() else None
