"""PostgreSQL under crashes, races and lost answers: nothing acknowledged is lost, nothing is done twice.

`python -m verify.postgres_faults` strikes at a server on disk and at its clients, and prints one section;
`--short` does less of each.
"""

import asyncio
import sys
import tempfile
import time
import traceback
from pathlib import Path

from msgspec import Struct

from verify.environment import say
from verify.kills_runs import Case, Load, Tally, kill_at_failpoints
from verify.postgres_fault_runs import FAULTS, Outages, outages
from verify.postgres_order_runs import BATCH, Orders, opposite_orders
from verify.postgres_race_runs import (
    ChaosResult,
    PostgresProcesses,
    Races,
    SlowLoad,
    chaos,
    deaths,
    races,
    rehearse,
)
from verify.postgres_server import PostgresServer

RETRIED_MAX = 0.05
RECOVERY_SECONDS_MAX = 5.0
LONGEST_SECONDS_MAX = 5.0
SEED = 28
VERBS = ("enqueue", "claim", "heartbeat", "complete", "release", "cancel")


class Size(Struct, frozen=True, kw_only=True):
    strikes: int
    rounds: int
    deaths: int
    kills: int
    jobs: int
    faults: int
    orders: int


LONG = Size(strikes=5, rounds=1_000, deaths=100, kills=450, jobs=1_000, faults=60, orders=25)
SHORT = Size(strikes=1, rounds=20, deaths=0, kills=10, jobs=150, faults=5, orders=2)


class Results(Struct, frozen=True, kw_only=True):
    """Everything the section is made of."""

    outages: Outages
    control: Outages
    claims: Races
    acquires: Races
    orders: Orders
    deadlocks: int
    deaths: Tally
    deaths_control: Tally
    load: Load
    chaos: ChaosResult
    seconds: float


def run(root: Path, size: Size) -> Results:
    started = time.monotonic()
    folders = {name: root / name for name in ("outages", "control", "kills", "control_kills")}
    for folder in folders.values():
        folder.mkdir()
    struck = outages(PostgresServer(), folders["outages"], FAULTS * size.strikes, jobs=100)
    control = outages(PostgresServer(), folders["control"], ["kill"], jobs=10, early=True)
    with PostgresServer(fast=True, settings={"max_connections": "300"}) as server:
        claims, acquires = (
            races(server.url(schema=verb), verb, processes=8, rounds=rounds)
            for verb, rounds in (("claim", size.rounds), ("acquire", size.rounds // 4))
        )
        orders = asyncio.run(opposite_orders(server.url(schema="orders"), rounds=size.orders))
        deadlocks = int(server.sql("SELECT sum(deadlocks) FROM pg_stat_database;"))
        with PostgresProcesses(server).at_home() as processes:
            cases = deaths(rehearse(processes, folders["kills"]), size.deaths)
            died = kill_at_failpoints(processes, folders["kills"], cases)
            early = [Case("life", "postgres.decided", 2, early=True)]
            died_early = kill_at_failpoints(processes, folders["control_kills"], early)
            load = SlowLoad(processes, root / "load", SEED)
            load.run(size.kills)
            say("chaos")
            workers = chaos(processes, root / "chaos", jobs=size.jobs, faults=size.faults)
    return Results(
        outages=struck,
        control=control,
        claims=claims,
        acquires=acquires,
        orders=orders,
        deadlocks=deadlocks,
        deaths=died,
        deaths_control=died_early,
        load=load,
        chaos=workers,
        seconds=time.monotonic() - started,
    )


def troubles(results: Results, *, short: bool) -> list[str]:
    """Everything that must not be. Few outages need not lose an answer; many that lose none are too
    kind."""
    struck, workers = results.outages, results.chaos
    found = [f"{v.job_id}: {v.invariant}: {v.details}" for v in struck.violations]
    found += [] if struck.equal else ["after the outages, a record differs from its log"]
    found += [] if struck.unknown or short else ["no answer was lost in an outage"]
    for fault in struck.faults:
        if struck.recovery_seconds(fault) > RECOVERY_SECONDS_MAX:
            found.append(f"after {fault.name}: {struck.recovery_seconds(fault):.1f} s of silence")
    for name, race in (("claim", results.claims), ("acquire", results.acquires)):
        if set(race.winners) != {1} or race.tokens != {1}:
            found.append(f"{name}: rounds with {set(race.winners)} winners, tokens {race.tokens}")
    found += results.orders.errors
    if results.orders.longest_seconds > LONGEST_SECONDS_MAX:
        found.append(f"a batch took {results.orders.longest_seconds:.1f} s")
    for tally in (results.deaths, results.load.tally):
        found += [*tally.lost, *tally.wrong]
    found += [*workers.lost, *workers.wrong]
    for name, share in (("claims", results.claims.retried), ("workers", retried(workers))):
        if share > RETRIED_MAX:
            found.append(f"{name}: {share:.1%} of commits were decided again")
    if not any(v.invariant == "I11" for v in results.control.violations):
        found.append("the control of the outages was not found out")
    if not results.deaths_control.lost:
        found.append("the control of the kills was not found out")
    return found


def retried(workers: ChaosResult) -> float:
    return workers.retries / max(1, workers.commits)


def section(results: Results, *, short: bool) -> tuple[str, bool]:
    """The report, and whether its claim holds."""
    wrong = troubles(results, short=short)
    table = "\n".join(f"| {what} | {value} |" for what, value in figures(results))
    outage_rows = "\n".join(outage(results.outages, name) for name in FAULTS)
    return (
        f"""## PostgreSQL under faults

A server on disk is restarted, shut down hard and killed, and loses its connections, while two processes
of claimers are on the record; their history has one order, and their server has all they were told. Then
64 claimers race, batches meet in opposite orders, and clients are killed wherever it hurts.

| server | times | away, s | silent afterwards, longest, s |
|---|---|---|---|
{outage_rows}

| | |
|---|---|
{table}

Controls, clients that acknowledge before the commit: {len(results.control.violations)} losses found in the
outage, {len(results.deaths_control.lost)} in the kills (none would mean that the checker is blind).

{"".join(f"- **wrong**: {line}{chr(10)}" for line in wrong[:20])}\
`python -m verify.postgres_faults{" --short" if short else ""}`, {results.seconds:.0f} s: \
**{"holds" if not wrong else "DOES NOT HOLD"}**
""",
        not wrong,
    )


def figures(results: Results) -> list[tuple[str, object]]:
    struck, orders, workers = results.outages, results.orders, results.chaos
    deaths, load = results.deaths, results.load
    return [
        ("operations answered while the server went away", f"{struck.answered:,}"),
        ("of unknown end, sent again with the same op_id", f"{struck.unknown:,}"),
        ("**acknowledged and lost, or done twice**", len(struck.violations)),
        *(latency(struck, verb) for verb in VERBS),
        ("rounds of 64 claimers in 8 processes for one job", len(results.claims.winners)),
        ("rounds with another number of winners than one", odd(results.claims)),
        ("commits decided again", f"{results.claims.retried:.2%}"),
        ("rounds of 64 who acquire one job by its id", len(results.acquires.winners)),
        ("rounds with another number of winners than one", odd(results.acquires)),
        ("losers who decided again, a round", f"{again(results.acquires):.0f}"),
        (f"calls in batches of {BATCH} in opposite orders, 4 clients", f"{orders.calls:,}"),
        ("errors among them", len(orders.errors)),
        ("deadlocks; longest batch", f"{results.deadlocks}; {orders.longest_seconds:.2f} s"),
        ("clients killed at failpoints", deaths.kills),
        ("clients killed at random under load", load.tally.kills + load.fused),
        ("operations they had acknowledged", f"{deaths.acknowledged + load.tally.acknowledged:,}"),
        ("**acknowledged and lost**", len(deaths.lost) + len(load.tally.lost)),
        ("transitions, each with its one event", f"{load.tally.transitions:,}"),
        ("jobs done by 32 workers", workers.jobs),
        ("killed; stopped; cut off", f"{workers.kills}; {workers.stalls}; {workers.partitions}"),
        ("leases that ran out on the way", workers.crashes),
        ("claimed twice, lost or not ended", len(workers.lost) + len(workers.wrong)),
        ("commits decided again", f"{retried(workers):.2%}"),
    ]


def odd(race: Races) -> int:
    return sum(winners != 1 for winners in race.winners)


def again(race: Races) -> float:
    return race.retries / max(1, len(race.winners))


def latency(struck: Outages, verb: str) -> tuple[str, str]:
    took = struck.seconds(verb)
    if not took:
        return f"{verb} between outages", "none"
    half, most = took[len(took) // 2], took[int(len(took) * 0.99)]
    return f"{verb} between outages, p50 and p99", f"{half * 1e3:.0f} and {most * 1e3:.0f} ms"


def outage(struck: Outages, name: str) -> str:
    faults = [fault for fault in struck.faults if fault.name == name]
    away = max((fault.ready - fault.struck) / 1e9 for fault in faults)
    silent = max(struck.recovery_seconds(fault) for fault in faults)
    return f"| {WORDS[name]} | {len(faults)} | {away:.2f} | {silent:.2f} |"


WORDS = {
    "terminate": "`pg_terminate_backend` of every client",
    "fast": "fast restart",
    "immediate": "immediate restart",
    "kill": "kill -9 of the postmaster, start",
}


def main() -> int:
    short = "--short" in sys.argv[1:]
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-faults-") as root:
            page, holds = section(run(Path(root), SHORT if short else LONG), short=short)
    except Exception as error:  # whatever it is, it is no pass
        traceback.print_exc()
        page = f"## PostgreSQL under faults\n\n**It did not come to its end: {error!r}**"
        holds = False
    print(page)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
