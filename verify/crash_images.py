"""Simulated power cuts: the recorded file calls of a run, cut after each of them, in every bad way."""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from verify.disk_verdict import contradictions
from verify.disk_workload import Workload
from verify.faulty_disk import FaultyDisk
from verify.shadow_disk import Recording


@dataclass
class Images:
    """What became of the images of one recording."""

    calls: int = 0
    made: int = 0
    bad: int = 0
    troubles: list[str] = field(default_factory=list)


async def record(disk: FaultyDisk, folder: Path) -> Recording:
    """Run the workload on a disk that works, and keep every call it makes."""
    recording = Recording()
    workload = Workload(folder / "jobs.db")
    workload.told = recording.note
    disk.arm(None)
    disk.shadow = recording
    try:
        await workload.run()
        await workload.close()
    finally:
        disk.shadow = None
    assert not workload.troubles, workload.troubles
    return recording


async def cut_everywhere(recording: Recording, folder: Path, *, torn: int, every: int = 1) -> Images:
    """After every call: one image without all that was not synced, and `torn` with some of it."""
    images = Images(calls=len(recording.calls))
    for instant, (shadow, answers) in enumerate(recording.instants(), start=1):
        if instant % every:
            continue
        for seed in range(torn + 1):
            image = folder / "image"
            if seed:
                shadow.lay_out_at_random(image, random.Random(f"{instant}/{seed}"))
            else:
                shadow.lay_out(image)
            found = await contradictions(image / "jobs.db", answers)
            shutil.rmtree(image)
            images.made += 1
            images.bad += bool(found)
            images.troubles += [f"cut after call {instant}, image {seed}: {one}" for one in found]
    return images
