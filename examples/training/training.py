"""A training job that survives kill -9: it saves itself every epoch and goes on where it stopped.

    python training.py

trains a small model, kills the worker in the middle of it, starts another one, and shows that the
second went on where the first had stopped. In production the workers are services:
holdfast worker training:app
"""

import math
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TypedDict

import holdfast

FEATURES = 6

app = holdfast.App()


@dataclass
class Model:
    """Logistic regression: a weight for each feature, after `epoch` epochs."""

    epoch: int
    weights: list[float]
    loss: float


class Trained(TypedDict):
    """What a job returns."""

    weights: list[float]
    loss: float
    epochs: int
    began_at: int


@app.job(isolation="process", lease=3)
def train(
    ctx: holdfast.Context, epochs: int = 60, save_every: int = 1, start: Model | None = None
) -> Trained:
    """Train from the last checkpoint; from `start`, if there is none; else from nothing."""
    model = ctx.last_checkpoint(Model) or start or Model(0, [0.0] * FEATURES, math.inf)
    began_at = model.epoch
    ctx.log.info("attempt %d begins at epoch %d", ctx.attempt, began_at)
    data = list(examples(2000))
    while model.epoch < epochs:
        model = step(model, data)
        stopping = ctx.cancelled
        if stopping or model.epoch % save_every == 0:
            ctx.checkpoint(asdict(model))
        ctx.progress(model.epoch, epochs)
        ctx.emit("epoch", number=model.epoch, loss=model.loss)
        if stopping:
            raise holdfast.Cancelled(f"Stopped after epoch {model.epoch}.")
    return {
        "weights": model.weights,
        "loss": model.loss,
        "epochs": model.epoch,
        "began_at": began_at,
    }


def step(model: Model, data: list[tuple[list[float], float]], rate: float = 0.5) -> Model:
    """One epoch of gradient descent."""
    slope, loss = [0.0] * FEATURES, 0.0
    for features, label in data:
        score = sum(w * x for w, x in zip(model.weights, features, strict=True))
        guess = 1 / (1 + math.exp(-score))
        loss -= math.log(guess if label else 1 - guess)
        slope = [s + (guess - label) * x for s, x in zip(slope, features, strict=True)]
    weights = [w - rate * s / len(data) for w, s in zip(model.weights, slope, strict=True)]
    return Model(model.epoch + 1, weights, loss / len(data))


def examples(count: int) -> Iterator[tuple[list[float], float]]:
    """Points, each labelled by the side of a hidden plane it lies on. The same ones every time."""
    seed = 1
    for _ in range(count):
        features = []
        for _ in range(FEATURES):
            seed = seed * 48271 % 2147483647
            features.append(seed / 2147483647 - 0.5)
        yield features, float(sum(features) > features[0] * 3)


def main() -> None:
    job = train.configure(name="training").enqueue()
    first = start_worker("first")
    wait_for_epochs(job.job_id, 10)
    print("*** kill -9 ***")
    first.kill()
    first.wait()
    second = start_worker("second", "--drain")
    result = job.result(timeout=60)
    second.wait(timeout=60)
    print(f"The second worker began at epoch {result['began_at']} of {result['epochs']}.")
    print(f"The loss is {result['loss']:.4f}.")


def wait_for_epochs(job_id: str, count: int) -> None:
    with holdfast.Client(app.url) as client:
        for event in client.events(job_id):
            if event.event_type == "custom":
                print(event.attributes["data"])
                count -= 1
            if count == 0:
                break


def start_worker(name: str, *options: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["holdfast", "worker", "training:app", "--name", name, *options])


if __name__ == "__main__":
    main()
