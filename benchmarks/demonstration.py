"""How reliably the alarm of the demonstration rings: visits from the break to the alarm, and false alarms."""

from __future__ import annotations

import argparse

import invariant_bandits as ib
from invariant_bandits.policies.randomised import Randomised
from invariant_bandits.simulation.sample_logs import FEATURES, Shop
from invariant_bandits_service.cli.demonstration import DemonstrationPlan

PATIENCE = 1_200


def rung_after(seed: int, break_after: int) -> tuple[bool, int | None]:
    """Whether the alarm rang too early, and how many visits after the break it rang, if it did."""
    shop = Shop(seed)
    model = ib.fit_logs(shop.log(), windows=10)
    policy = Randomised(model.policy, 0.05, seed=seed)
    for visit in range(break_after + PATIENCE):
        if visit == break_after:
            shop.break_invariance()
        products = shop.visit()
        features = model.features(
            {name: [product[name] for product in products] for name in FEATURES}
        )
        action = policy.select(features)
        policy.update(
            features[action],
            shop.brings(products[action]) - model.baseline,
            offered=features,
            action=action,
        )
        if model.policy.alarm:
            return visit < break_after, visit - break_after
    return False, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shops", type=int, default=40)
    parser.add_argument(
        "--break-after", type=int, default=DemonstrationPlan.break_after
    )
    told = parser.parse_args()
    found = [rung_after(seed, told.break_after) for seed in range(told.shops)]
    late = sorted(after for early, after in found if after is not None and not early)
    print(
        f"{len(late)} of {told.shops} shops rang after the break, {sum(early for early, _ in found)} "
        f"before it"
    )
    print(f"visits from break to alarm: median {late[len(late) // 2]}, most {late[-1]}")


if __name__ == "__main__":
    main()
