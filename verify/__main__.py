"""Every proof, one after the other, on one page: `make verify`."""

import argparse
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import apsw

from verify.environment import CANNOT_RUN

SECTIONS = (
    "simulation",
    "planted_bugs",
    "history",
    "rest_fuzz",
    "kills",
    "zombies",
    "power_cuts",
    "io_errors",
    "postgres_faults",
    "clocks",
    "mutants",
    "model",
)
SECONDS_MAX = 2400

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "verify" / "results" / "verify.md"


def commit() -> str:
    """What is proved: a commit, and whether the tree had more in it."""
    name = _git("rev-parse", "--short=10", "HEAD")
    changed = _git("status", "--porcelain", "--", "src", "tests", "verify", ":!verify/results")
    return f"{name} with uncommitted changes" if changed else name


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def section(name: str, short: bool) -> tuple[str, int, float]:
    """Run one proof: its section, its exit code, its seconds."""
    print(f"verify.{name} ...", file=sys.stderr, flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", f"verify.{name}", *(["--short"] if short else [])]
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=SECONDS_MAX
        )
        text, code = done.stdout.strip(), done.returncode
    except subprocess.TimeoutExpired:
        text, code = f"## {name}\n\n**It took longer than {SECONDS_MAX} s.**", 1
    seconds = time.monotonic() - started
    print(f"verify.{name}: exit {code}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return text or f"## {name}\n\n**It broke and said nothing.**", code, seconds


def page(results: dict[str, tuple[str, int, float]], proved: str) -> str:
    """One page that a sceptic would read."""
    minutes = sum(seconds for _, _, seconds in results.values()) / 60
    lines = [
        "# What was proved, and how",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {proved}, {minutes:.0f} minutes on"
        f" {os.cpu_count()} cores, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}."
        " Made by `make verify`; nothing on this page was written by hand.",
        "",
        "| proof | verdict | seconds |",
        "|---|---|---|",
    ]
    for text, code, seconds in results.values():
        title = text.splitlines()[0].lstrip("# ")
        lines.append(f"| {title} | {_verdict(code)} | {seconds:.0f} |")
    missing = [name for name in SECTIONS if not any(name == one.partition(":")[0] for one in results)]
    lines += [f"| {name} | not in this run | |" for name in missing]
    lines += ["", *(f"{text}\n" for text, _, _ in results.values())]
    return "\n".join(lines)


def _verdict(code: int) -> str:
    if code == CANNOT_RUN:
        return "**NOT RUN: this machine forbids it**"
    return "holds" if code == 0 else "**FAILS**"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify")
    parser.add_argument("--short", action="store_true", help="the small form of each; no page is saved")
    parser.add_argument(
        "sections",
        nargs="*",
        help=f"only these, of {', '.join(SECTIONS)}; NAME:short for its small form",
    )
    options = parser.parse_args()
    proved = commit()
    results: dict[str, tuple[str, int, float]] = {}
    for wanted in options.sections or SECTIONS:
        name, _, form = wanted.partition(":")
        text, code, seconds = section(name, options.short or form == "short")
        if form == "short":
            text = text.replace("\n", " (small form)\n", 1)
        results[wanted] = (text, code, seconds)
        if not options.short:
            save(page(results, proved))
    if commit() != proved:
        proved = f"{proved}, which changed while it was proved"
    text = page(results, proved)
    print(text)
    if not options.short:
        save(text)
    return 0 if all(code == 0 for _, code, _ in results.values()) else 1


def save(text: str) -> None:
    """Keep the page after every proof: a run that is cut short leaves what it has shown."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
