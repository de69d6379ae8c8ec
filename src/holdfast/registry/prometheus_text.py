"""Numbers in the text format that Prometheus reads."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from holdfast.registry.counters import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "holdfast_"
Samples = Iterable[tuple[tuple[str, ...], float]]


def counter(name: str, words: str, labels: Sequence[str], samples: Samples) -> str:
    return _family(f"{name}_total", "counter", words, labels, samples)


def gauge(name: str, words: str, labels: Sequence[str], samples: Samples) -> str:
    return _family(name, "gauge", words, labels, samples)


def plain_gauge(name: str, words: str, value: float) -> str:
    """A gauge without labels."""
    return gauge(name, words, (), [((), value)])


def plain_counter(name: str, words: str, value: float) -> str:
    """A counter without labels."""
    return counter(name, words, (), [((), value)])


def histogram(
    name: str,
    words: str,
    labels: Sequence[str],
    histograms: Mapping[tuple[str, ...], Histogram],
) -> str:
    parts = [_head(name, "histogram", words)]
    for values, one in histograms.items():
        numbers = list(accumulate(one.buckets))
        shape = _shape(name, tuple(labels), values, one.bounds)
        parts.append(shape % (*numbers, one.total, numbers[-1]))
    return "".join(parts)


@lru_cache(maxsize=4096)
def _shape(name: str, labels: tuple[str, ...], values: tuple[str, ...], bounds: tuple[float, ...]) -> str:
    """The lines of one histogram without its numbers: filling them in takes 3 us, building all 30 us."""
    own = _labels(labels, values).replace("%", "%%")
    more = own[1:-1] + "," if own else ""
    les = [*map(str, bounds), "+Inf"]
    lines = [f'{PREFIX}{name}_bucket{{{more}le="{le}"}} %d\n' for le in les]
    return "".join([*lines, f"{PREFIX}{name}_sum{own} %.6f\n{PREFIX}{name}_count{own} %d\n"])


def _family(name: str, kind: str, words: str, labels: Sequence[str], samples: Samples) -> str:
    lines, names = [_head(name, kind, words)], tuple(labels)
    for values, value in samples:
        lines.append(f"{PREFIX}{name}{_labels(names, values)} {value}\n")
    return "".join(lines)


def _head(name: str, kind: str, words: str) -> str:
    return f"# HELP {PREFIX}{name} {words}\n# TYPE {PREFIX}{name} {kind}\n"


@lru_cache(maxsize=8192)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def process_metrics() -> str:
    """Return the memory, time and files of this process. It reads files: do not call it in an event
    loop."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()
