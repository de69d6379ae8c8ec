"""Outputs: how long it takes to look for 100,000 of them, in how much memory, and to plan a resume.

python bench/outputs.py [--quick]

Every measurement is a process of its own (outputs_part.py), and so is the bare script beside it, which
reads and hashes the same files and does nothing else. One warm-up, then three rounds by turns; the
median counts, and all of them are told.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Figure, Outcome, at_most, conclude

HERE = Path(__file__).parent
PREFIX = "holdfast-outputs-"
ROUNDS = 3
OUTPUTS, MANY = 100_000, 1_000_000
SECONDS_MAX, MEGABYTES_MAX, PLAN_SECONDS_MAX = 20, 100, 5
PARTS = ("bare all", "validate all", "validate few", "resume few", "resume most")
"""What is measured on which study: of "few" one in a hundred is missing, of "most" all but one."""

NOTES = [
    "an output is one file of 1 kB and its marker, two files in a folder of their own; every one is"
    " opened, read and hashed, in the cache of the operating system after the warm-up",
    "each measurement is a process of its own with a SQLite registry; memory is the most it had",
]
Said = dict[str, float]


def part(name: str, folder: Path, study: str, *numbers: int) -> Said:
    """One measurement in a process of its own."""
    ran = subprocess.run(
        [
            sys.executable,
            str(HERE / "outputs_part.py"),
            name,
            str(folder),
            study,
            *map(str, numbers),
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    said: Said = json.loads(ran.stdout)
    return said


def measure(folder: Path, outputs: int, *, rounds: int) -> dict[str, list[Said]]:
    """What each part said, round by round, without the warm-up."""
    for study, there in (("all", outputs), ("few", outputs - outputs // 100), ("most", 1)):
        part("write", folder, study, outputs, there)
    found: dict[str, list[Said]] = {name: [] for name in PARTS}
    for turn in range(1 + rounds):
        for name in PARTS:
            what, study = name.split()
            said = part(what, folder, study)
            found[name] += [said] * (turn > 0)
    return found


def middle(said: list[Said]) -> Said:
    return {name: statistics.median(one[name] for one in said) for name in said[0]}


def page(measured: dict[str, list[Said]], outputs: int) -> list[Figure]:
    found = {name: middle(said) for name, said in measured.items()}
    bare, ours, few = found["bare all"], found["validate all"], found["validate few"]
    peak = max(one["megabytes"] for one in measured["validate all"])
    figures = [
        at_most(f"validate {outputs:,} outputs", ours["seconds"], "s", must=SECONDS_MAX, gate=True),
        at_most("… peak memory", peak, "MB", must=MEGABYTES_MAX, gate=True),
        at_most("… CPU, all that the process used", ours["cpu"], "s"),
        at_most(f"… by the bare script: {bare['files']:,.0f} files", bare["seconds"], "s"),
        at_most("… times the bare script", ours["seconds"] / bare["seconds"], "times"),
        at_most(f"validate with {outputs // 100:,} missing", few["seconds"], "s", must=SECONDS_MAX),
    ]
    for name in ("resume few", "resume most"):
        said = found[name]
        figures.append(
            at_most(
                f"plan a resume of {said['missing']:,.0f} of {outputs:,} tasks",
                said["seconds"],
                "s",
                must=PLAN_SECONDS_MAX,
                gate=True,
            )
        )
    return figures


def million(folder: Path) -> list[Figure]:
    """Ten times as many, once: it takes longer, and no more memory."""
    part("write", folder, "million", MANY, MANY)
    said = part("validate", folder, "million")
    return [
        at_most(f"validate {MANY:,} outputs, once", said["seconds"], "s"),
        at_most("… peak memory", said["megabytes"], "MB", must=MEGABYTES_MAX, gate=True),
    ]


def rounds_told(measured: dict[str, list[Said]]) -> list[str]:
    return [
        f"{name}, round by round: {', '.join(format(one['seconds'], '.2f') for one in said)} s"
        for name, said in measured.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth, and not the million")
    parser.add_argument("--folder", help="where to work, if not in the folder for temporary files")
    parser.add_argument("--million", metavar="FOLDER", help="where to keep two million files")
    given = parser.parse_args()
    quick = given.quick
    outputs = OUTPUTS // 10 if quick else OUTPUTS
    notes = list(NOTES)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=given.folder) as name:
        measured = measure(Path(name), outputs, rounds=ROUNDS)
        figures = page(measured, outputs)
        notes += rounds_told(measured)
    if not quick:
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=given.million or given.folder) as name:
            figures += million(Path(name))
            notes += [f"the million is in {given.million}"] * bool(given.million)
    return conclude("outputs", Outcome("Outputs", "a directory", figures, notes), quick=quick)


if __name__ == "__main__":
    sys.exit(main())
