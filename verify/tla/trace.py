"""A counterexample of TLC, told in one line per event: what each step did, and nothing else."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

_STEP = re.compile(r"^State \d+: <(\w+)[^>]*>\n(.*?)(?=^State \d|^\d+ states generated)", re.M | re.S)
_VARIABLE = re.compile(r"^/\\ (\w+) = (.*?)(?=^/\\ |\Z)", re.M | re.S)
_TOKEN = re.compile(r'<<|>>|\|->|[\[\]{},]|"[^"]*"|-?\w+')


def tell(text: str) -> str:
    """The counterexample in the output of TLC."""
    steps = [(name, _state(body)) for name, body in _STEP.findall(text)]
    lines = []
    for number, ((_, before), (name, after)) in enumerate(pairwise(steps), start=1):
        news = list(_news(before, after)) or ["nothing to be seen"]
        lines.append(f"{number:2}  {name:<20}{news[0]}")
        lines += [f"{'':24}{line}" for line in news[1:]]
    return "\n".join(lines)


def _state(body: str) -> dict[str, Any]:
    return {name: value(text) for name, text in _VARIABLE.findall(body)}


def value(text: str) -> Any:
    """A value as TLC prints it: records as dicts, sequences and sets as lists."""
    return _value(iter(_TOKEN.findall(text)))


def _value(tokens: Iterator[str], first: str | None = None) -> Any:
    token = first or next(tokens)
    if token == "[":
        return _record(tokens)
    if token in ("<<", "{"):
        return _items(tokens, ">>" if token == "<<" else "}")
    if token.startswith('"'):
        return token[1:-1]
    return token == "TRUE" if token in ("TRUE", "FALSE") else int(token)


def _record(tokens: Iterator[str]) -> dict[str, Any]:
    found = {}
    while (name := next(tokens)) != "]":
        if name != ",":
            next(tokens)
            found[name] = _value(tokens)
    return found


def _items(tokens: Iterator[str], end: str) -> list[Any]:
    found = []
    while (token := next(tokens)) != end:
        if token != ",":
            found.append(_value(tokens, token))
    return found


def _news(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for job, (old, new) in enumerate(zip(before["log"], after["log"], strict=True), start=1):
        for event in new[len(old) :]:
            yield f"job {job} #{event['offset']} {_event(event)}"
    for job, (held, gap) in enumerate(zip(before["gap"], after["gap"], strict=True), start=1):
        for event in gap[0]["events"] if gap and gap != held else ():
            yield f"job {job} #{event['offset']} {_event(event)}: in the record, not in the log"
        if held and not gap and before["log"] == after["log"]:
            yield f"job {job}: what was to be written next is lost"
    for job, (was, now) in enumerate(zip(before["record"], after["record"], strict=True), start=1):
        if "none" not in (was["lease"], now["lease"]) and was["lease"] != now["lease"]:
            yield f"job {job}: its lease is {now['lease']}"
    for reading in after["readings"]:
        if reading not in before["readings"]:
            yield f"job {reading['job']}: read for {_op(reading['op'])}"
    for answer in after["answers"]:
        if answer not in before["answers"]:
            told = f" at version {answer['version']}" if answer["kind"] == "ok" else ""
            yield f"answer to {_op(answer['op'])}: {answer['kind']}{told}"
    if before["resource"] != after["resource"]:
        highest, last = after["resource"]["highest"], after["resource"]["last"]
        yield f"the resource accepts token {last}; the highest it has seen is {highest}"


def _event(event: dict[str, Any]) -> str:
    arrow = f"{event['from']} -> {event['to']}" if event["to"] else event["type"]
    shown = f", showing token {event['given']}" if event["given"] else ""
    place = f"attempt {event['attempt']}, token {event['token']}"
    return f"{arrow}, {place}, by {_op(event['op'])}{shown}"


def _op(op: dict[str, Any]) -> str:
    if op["verb"] == "none":
        return "an expiry"
    again = ", sent again as a new op" if op["try"] else ""
    return f"{op['verb']} {op['by']}{again}"
