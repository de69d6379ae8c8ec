"""`holdfast events` and `why`: what happened to a job, and why it is where it is."""

import json

from tests.cli.command_line import CommandLine, output


def test_events_of_a_job_and_of_all(cli: CommandLine) -> None:
    one, two = cli.submit(), cli.submit()
    cli.finish(one, None, output(1, b"x"))

    lines = cli.run("events", one).stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == [
        ["#1", "job_queued"],
        ["#2", "job_claimed"],
        ["#3", "job_started"],
        ["1.1", "output"],
        ["#4", "job_succeeded"],
    ]
    feed = cli.run("events")
    assert [line.split()[1] for line in feed.stdout.splitlines()] == [one, two, one, one, one, one]
    cursor = feed.stderr.split("--after ")[1].strip()
    assert cli.run("events", "--after", cursor).stdout == ""
    assert cli.run("events", "--follow", one).stdout.splitlines() == lines


def test_events_as_json_are_one_object_a_line(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, None, output(1, b"\xff\x00"))

    events = [json.loads(line) for line in cli.run("events", "--json", job_id).stdout.splitlines()]
    assert [event["event_id"] for event in events[:2]] == [f"{job_id}/1", f"{job_id}/2"]
    assert [event["data"] for event in events if event["event_type"] == "output"] == ["/wA="]


def test_why_says_it_in_a_sentence(cli: CommandLine) -> None:
    job_id = cli.submit("-q", "gpu")

    assert "No known worker serves queue gpu" in cli.run("why", job_id).stdout
