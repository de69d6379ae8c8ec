"""Tasks of a study, for tests of manifests."""

from typing import Any

from holdfast.core.manifest import (
    Task,
)

BUNDLE = "sha256:" + "0123456789abcdef" * 4
NAMED_BUNDLE = f"ghcr.io/idm/seir@{BUNDLE}"
SEIR = "models.seir/baseline"
PREVALENCE = "targets.prevalence:prevalence_target"
PARAMS = {"beta": 0.3, "gamma": 0.1}
SEEDS = (751131435, 2264224431, 472503505)


def simulation(**changes: Any) -> Task:  # noqa: ANN401  # also what is refused
    fields = {"bundle": BUNDLE, "entrypoint": SEIR, "params": PARAMS, "seed": SEEDS[0], **changes}
    return Task(**fields)


def aggregation(**changes: Any) -> Task:  # noqa: ANN401
    given = {"kind": "aggregation", "seed": None, "target": PREVALENCE, "seeds": SEEDS}
    return simulation(**{**given, **changes})
