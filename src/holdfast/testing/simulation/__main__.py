"""Run seeds, replay one, shrink it: `python -m holdfast.testing.simulation --seed 17 --trace`."""

import argparse
import sys

import msgspec

from holdfast.testing.simulation.bugs import BUGS, Bug
from holdfast.testing.simulation.plan import STORES, Plan, plan_of
from holdfast.testing.simulation.run import Result, simulate
from holdfast.testing.simulation.shrink import shrink


def main() -> int:
    options = _options()
    bug = BUGS[options.bug] if options.bug else None
    store = options.store or (bug.store if bug else None)
    failed = valid = 0
    for seed in range(options.seed, options.seed + options.seeds):
        plan = (
            _plan(options.plan)
            if options.plan
            else plan_of(
                seed,
                store,
                validators=_validators(options, bug),
                timed=_timed(options, bug),
                steps=options.steps or (bug is not None and bug.steps),
            )
        )
        result = simulate(plan, bug.plant() if bug else None)
        valid += result.valid
        if options.trace:
            _say(*result.lines)
        if options.hash:
            _say(f"{seed} {result.trace}")
        if result.violation is not None:
            failed += 1
            _tell(result, options.bug)
            if options.shrink:
                small = shrink(plan, result.violation.invariant, bug.plant if bug else None)
                text = msgspec.json.encode(small).decode()
                _say(f"shrunk: {_command(small, options.bug)} --trace --plan '{text}'")
    if not options.hash:
        seeds = f"{options.seeds} seed{'s' * (options.seeds != 1)}"
        _say(f"{seeds}: {failed} failed, {valid} hard enough to count")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.simulation",
        description="Run the whole product under seeded faults, on virtual time.",
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from the first on")
    parser.add_argument("--store", choices=STORES)
    parser.add_argument("--validators", type=int, help="how many validators; by the seed")
    parser.add_argument(
        "--timed", action=argparse.BooleanOptionalAction, help="jobs have timeouts; by the seed"
    )
    parser.add_argument("--steps", action="store_true", help="the clock of the store is set; SQL only")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug")
    parser.add_argument("--plan", help="a shrunk plan, as it was printed")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--hash", action="store_true", help="print the hash of each trace only")
    parser.add_argument("--shrink", action="store_true", help="make a failing plan small")
    return parser.parse_args()


def _validators(options: argparse.Namespace, bug: Bug | None) -> int | None:
    if options.validators is None and bug is not None:
        return bug.validators
    return options.validators  # type: ignore[no-any-return]


def _timed(options: argparse.Namespace, bug: Bug | None) -> bool | None:
    if options.timed is None and bug is not None:
        return bug.timed
    return options.timed  # type: ignore[no-any-return]


def _plan(text: str) -> Plan:
    return msgspec.json.decode(text, type=Plan)


def _tell(result: Result, bug: str | None) -> None:
    assert result.violation is not None  # the caller has just seen it
    _say(f"{result.violation.invariant}: {result.violation.words}")
    _say(f"replay: {_command(result.plan, bug)} --trace")


def _command(plan: Plan, bug: str | None) -> str:
    planted = f" --bug {bug}" if bug else ""
    where = f"--seed {plan.seed} --store {plan.store} --validators {plan.validators}"
    timed = "--timed" if plan.timed else "--no-timed"
    steps = " --steps" if plan.steps else ""
    return f"python -m holdfast.testing.simulation {where} {timed}{steps}{planted}"


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
