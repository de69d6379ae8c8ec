"""The paths of results: one function, used by those that write results and those that scan for them."""

from hashlib import blake2b

from msgspec import Struct

from holdfast.core.manifest import Task


class PathSchema(Struct, frozen=True, kw_only=True):
    """A layout of paths. Every path begins with its name and version, so that layouts never overlap."""

    name: str
    version: int
    simulation: str = "sims/{digest:.12}/{shard}/params_{param_id:.8}/seed_{seed}"
    aggregation: str = "aggs/{digest:.12}/target_{target}/agg_{aggregation_id}"

    def path(self, task: Task) -> str:
        """Return the directory of a task's result. It has shortened ids and no entrypoint, so two tasks
        may share a directory; only the marker inside says whose result it is."""
        root = f"{self.name}/v{self.version}"
        if task.kind == "simulation":
            param_id = task.param_id
            inside = self.simulation.format(
                digest=task.digest, shard=_shard(param_id), param_id=param_id, seed=task.seed
            )
        else:
            inside = self.aggregation.format(
                digest=task.digest,
                target=str(task.target).replace("/", "_"),
                aggregation_id=task.aggregation_id,
            )
        return f"{root}/{inside}/"

    def path_beside(self, task: Task) -> str:
        """Return the directory to use when `path` is taken by the result of another task."""
        return f"{self.path(task)[:-1]}-{task.task_id}/"


TOKEN_1 = PathSchema(name="token", version=1)
BUNDLE_1 = PathSchema(name="bundle", version=1)


def _shard(value: str) -> str:
    """Return two directory levels of two digits each, so that no directory gets too large."""
    digits = blake2b(value.encode(), digest_size=32).hexdigest()
    return f"{digits[:2]}/{digits[2:4]}"
