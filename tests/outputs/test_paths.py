"""The paths of results are those that modelops writes (06153e8): computed with it, written down here."""

import pytest

from holdfast.core.manifest import Task
from holdfast.outputs.paths import BUNDLE_1, TOKEN_1, PathSchema

BUNDLE = "sha256:" + "0123456789abcdef" * 4
SEEDS = (751131435, 2264224431, 472503505)
ONE = Task(
    bundle=BUNDLE,
    entrypoint="models.seir/baseline",
    params={"beta": 0.3, "gamma": 0.1},
    seed=SEEDS[0],
)


def aggregation(target: str) -> Task:
    return Task(
        kind="aggregation",
        bundle=BUNDLE,
        entrypoint=ONE.entrypoint,
        params=ONE.params,
        target=target,
        seeds=SEEDS,
    )


@pytest.mark.parametrize(("schema", "root"), [(TOKEN_1, "token/v1"), (BUNDLE_1, "bundle/v1")])
def test_a_simulation_is_where_modelops_has_it(schema: PathSchema, root: str) -> None:
    assert schema.path(ONE) == f"{root}/sims/0123456789ab/9a/db/params_761edf35/seed_751131435/"


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        (
            "targets.prevalence:prevalence_target",
            "target_targets.prevalence:prevalence_target/agg_e5e491d5edf0eff3/",
        ),
        ("targets.covid/deaths", "target_targets.covid_deaths/agg_63562b4ac1eee707/"),
    ],
)
def test_an_aggregation_is_where_modelops_has_it(target: str, inside: str) -> None:
    assert TOKEN_1.path(aggregation(target)) == f"token/v1/aggs/0123456789ab/{inside}"


def test_the_version_is_part_of_the_path() -> None:
    newer = PathSchema(name="token", version=2, simulation="{digest}/{param_id}/{seed}")

    assert newer.path(ONE) == f"token/v2/{BUNDLE[7:]}/{ONE.param_id}/751131435/"


def test_tasks_that_share_a_path_do_not_share_the_one_apart() -> None:
    other = Task(bundle=BUNDLE, entrypoint="models.seir/lockdown", params=ONE.params, seed=SEEDS[0])

    assert TOKEN_1.path(other) == TOKEN_1.path(ONE)
    assert TOKEN_1.path_beside(ONE) == f"{TOKEN_1.path(ONE)[:-1]}-{ONE.task_id}/"
    assert TOKEN_1.path_beside(other) != TOKEN_1.path_beside(ONE)
