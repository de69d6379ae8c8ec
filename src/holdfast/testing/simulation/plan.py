"""The plan of a seed: which store, which nodes, which jobs, and which faults happen to them."""

from random import Random  # noqa: TID251  # seeded: the same chance every time

from msgspec import Struct

STORES = ("memory", "sqlite", "objects")
"""Two of the transactional family, as dictionaries and in SQL, and one of single objects."""

TROUBLE_SECONDS = 24.0
HEAL_SECONDS = 120.0
STEP_SECONDS_MIN, STEP_SECONDS_MAX = 600.0, 3600.0
"""By how much the store's clock is set: less could not be told from a slow response."""

FAULTS = (
    "pause",
    "lost",
    "kill",
    "crash",
    "late",
    "refused",
    "denied",
    "conflict",
    "slow",
    "cut",
    "skew",
    "drift",
    "jump",
    "deaf",
)
"""pause and kill happen to nodes at any instant, crash at a failpoint; lost, late, refused, denied,
conflict, slow and cut to the network; skew, drift and jump to clocks; deaf loses wake-ups."""

ALWAYS = ("pause", "lost")
"""Without a pause no lease expires, without a lost response nothing is in doubt: a run needs both."""


RATES = (0.01, 0.03, 0.08)
RARELY = {"crash": 0.03}
"""Failpoints are passed all the time."""


class NodeFault(Struct, frozen=True):
    """A fault that happens to a node at an instant."""

    at: float
    fault: str
    node: int
    seconds: float = 0.0


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that the seed decides beforehand. To shrink a failure is to shrink its plan."""

    seed: int
    store: str
    faults: tuple[str, ...]
    rates: dict[str, float]
    workers: int
    owners: int
    clients: int
    jobs: int
    node_faults: tuple[NodeFault, ...]
    shuffle: bool = True
    validators: int = 0
    timed: bool = False

    @property
    def transactional(self) -> bool:
        return self.store != "objects"

    @property
    def steps(self) -> bool:
        """Whether the store's own clock is set during the run."""
        return "step" in self.faults

    @property
    def nodes(self) -> int:
        return self.workers + self.owners + self.clients + self.validators


def plan_of(
    seed: int,
    store: str | None = None,
    *,
    validators: int | None = None,
    timed: bool | None = None,
    steps: bool = False,
) -> Plan:
    """Return the plan of a seed: a random subset of the faults, so that rare ones have an effect.

    Half of the seeds have `validators`, and with them jobs that promise outputs; or as many as given. In a
    third of them jobs have timeouts, which owners do not keep; or (`timed`) in this one. With `steps`, the
    clock of a store in SQL is set while it is in use.
    """
    chance = Random(f"plan/{seed}")
    family = chance.choice(("memory", "sqlite", "sqlite", "objects"))
    faults = ALWAYS + tuple(fault for fault in FAULTS[2:] if chance.random() < 0.4)
    workers, owners, clients = chance.randint(1, 3), chance.randint(1, 2), chance.randint(1, 2)
    nodes = workers + owners + clients
    looking = Random(f"validators/{seed}")
    several = looking.choice((0, 0, 1, 2)) if validators is None else validators
    node_faults = _node_faults(chance, faults, nodes) + _node_faults(looking, faults, several, nodes)
    stepping = Random(f"steps/{seed}")
    if steps:
        node_faults += tuple(_step(stepping) for _ in range(stepping.randint(1, 3)))
    return Plan(
        seed=seed,
        store="sqlite" if steps else store or family,
        faults=(*faults, "step") if steps else faults,
        rates={fault: chance.choice(RATES) * RARELY.get(fault, 1) for fault in FAULTS},
        workers=workers,
        owners=owners,
        clients=clients,
        jobs=chance.randint(4, 14),
        node_faults=tuple(sorted(node_faults, key=lambda node_fault: node_fault.at)),
        validators=several,
        timed=Random(f"timed/{seed}").random() < 1 / 3 if timed is None else timed,
    )


def _step(chance: Random) -> NodeFault:
    by = chance.choice((-1, 1)) * chance.uniform(STEP_SECONDS_MIN, STEP_SECONDS_MAX)
    return NodeFault(at=round(chance.uniform(3, TROUBLE_SECONDS), 3), fault="step", node=0, seconds=by)


def _node_faults(
    chance: Random, faults: tuple[str, ...], nodes: int, first: int = 0
) -> tuple[NodeFault, ...]:
    if not nodes:
        return ()
    node_faults = []
    for fault, most, longest in (
        ("pause", 5, 9.0),
        ("kill", 4, 3.0),
        ("cut", 3, 5.0),
        ("jump", 4, 0.0),
    ):
        if fault in faults:
            node_faults += [
                NodeFault(
                    at=round(chance.uniform(1, TROUBLE_SECONDS), 3),
                    fault=fault,
                    node=first + chance.randrange(nodes),
                    seconds=round(chance.uniform(0.3, longest) if longest else 0.0, 3),
                )
                for _ in range(chance.randint(2, most))
            ]
    return tuple(node_faults)
