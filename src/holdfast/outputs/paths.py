"""Where results are kept: one path function, for whoever writes them and whoever looks for them."""

from hashlib import blake2b

from msgspec import Struct

from holdfast.core.manifest import Task


class Schema(Struct, frozen=True, kw_only=True):
    """A layout of paths. Its name and its version begin every path, so that a new one never meets an old."""

    name: str
    version: int
    simulation: str = "sims/{digest:.12}/{shard}/params_{param_id:.8}/seed_{seed}"
    aggregation: str = "aggs/{digest:.12}/target_{target}/agg_{aggregation_id}"

    def path(self, task: Task) -> str:
        """The directory of the result of a task. Ids are cut short in it, and the entrypoint is not in
        it: two tasks may share one, and only what is inside says whose it is."""
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

    def path_apart(self, task: Task) -> str:
        """The directory of its result when that of another task lies in the first."""
        return f"{self.path(task)[:-1]}-{task.task_id}/"


TOKEN_1 = Schema(name="token", version=1)
BUNDLE_1 = Schema(name="bundle", version=1)


def _shard(value: str) -> str:
    """Two directories of two digits each, so that none gets too large."""
    digits = blake2b(value.encode(), digest_size=32).hexdigest()
    return f"{digits[:2]}/{digits[2:4]}"
