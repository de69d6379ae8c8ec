// A foreign client in its own language: what a user of connect-node relies on, one claim a test.
//
// test_node_client.py copies this beside the examples, and runs it once with JSON and once with binary.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import {
  EventType,
  type JobEvent,
  type JobEventSchema,
  JobEventsService,
  JobService,
  JobState,
  StreamType,
} from "./generated/job/v1/job_pb.ts";

type Event = MessageInitShape<typeof JobEventSchema>;

const transport = createConnectTransport({
  baseUrl: process.env.SERVICE_URL ?? "",
  httpVersion: "1.1",
  useBinaryFormat: process.env.FORMAT === "binary",
  defaultTimeoutMs: 40_000,
});
const jobs = createClient(JobService, transport);
const events = createClient(JobEventsService, transport);

const BYTES = Uint8Array.from({ length: 256 }, (_, n) => n);
const START: Event = {
  eventType: EventType.PROCESS_START,
  eventData: { case: "processStart", value: { pid: 7 } },
};

function output(text: string | Uint8Array): Event {
  const data = typeof text === "string" ? Buffer.from(text) : text;
  const value = { output: data, streamType: StreamType.STDERR };
  return { eventType: EventType.OUTPUT, eventData: { case: "output", value } };
}

/** The events, each as a message of its own, numbered from `first` on. */
async function* messages(taskToken: string, said: Event[] | AsyncIterable<Event>, first = 1n) {
  for await (const event of said) yield { taskToken, events: [{ ...event, sequence: first++ }] };
}

async function enqueued(queue: string): Promise<string> {
  return (await jobs.enqueueJob({ queue, jobParams: { command: "true" } })).jobId;
}

/** A job of its own queue, and the token of who holds it. */
async function held(visibilityTimeoutSeconds = 300) {
  const queue = randomUUID();
  const jobId = await enqueued(queue);
  const [granted] = await Array.fromAsync(jobs.dequeueJob({ queue, visibilityTimeoutSeconds }));
  assert.ok(granted);
  return { queue, jobId, taskToken: granted.taskToken };
}

async function refused(code: Code, words: RegExp, call: () => Promise<unknown>): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof ConnectError);
    assert.equal(Code[error.code], Code[code], error.message);
    assert.match(error.rawMessage, words);
    return true;
  });
}

/** Where each event is, and what it is. */
function places(found: (JobEvent | undefined)[]) {
  return found.map((event) => [event?.attempt, event?.sequence, event?.eventData.case]);
}

async function read(request: Parameters<typeof events.streamJobEvents>[0]) {
  return (await Array.fromAsync(events.streamJobEvents(request))).map(({ event }) => event);
}

describe("a client in node", { concurrency: true }, () => {
  test("a job goes from enqueue to its end", async () => {
    const queue = randomUUID();
    const jobParams = {
      command: "sh",
      args: ["-c", "true"],
      environment: { COLOUR: "blå" },
      metadata: { team: "a" },
      workingDirectory: "/tmp",
      timeoutSeconds: 60,
      owner: "ana",
    };
    const request = { queue, requestId: randomUUID(), jobParams };
    const made = await jobs.enqueueJob(request);
    assert.equal(made.state, JobState.SCHEDULED);
    assert.equal((await jobs.enqueueJob(request)).jobId, made.jobId);

    const grants = await Array.fromAsync(jobs.dequeueJob({ queue, maxJobs: 5 }));
    assert.equal(grants.length, 1);
    const { job, taskToken, attempt } = grants[0] ?? assert.fail();
    assert.deepEqual([job?.jobId, job?.state, attempt], [made.jobId, JobState.RUNNING, 1]);
    const { $typeName, processType, ...params } = job?.jobParams ?? assert.fail();
    assert.deepEqual({ ...params }, { ...params, ...jobParams });

    const extended = await jobs.updateJob({ queue, taskToken, visibilityTimeoutSeconds: 40 });
    assert.deepEqual([extended.leaseSeconds, extended.cancelRequested], [40, false]);
    const jobResult = { jobId: made.jobId, success: false, exitCode: 3 };
    await jobs.completeJob({ taskToken, jobResult });

    const { job: ended } = await jobs.getJob({ jobId: made.jobId });
    assert.deepEqual([ended?.state, ended?.result?.exitCode], [JobState.FAILED, 3]);
    const listed = await jobs.listJobs({ queue, state: JobState.FAILED });
    assert.deepEqual([listed.jobs.map((one) => one.jobId), listed.lastPage], [[made.jobId], 1]);
  });

  test("a queue is first in, first out, and an empty one ends its stream", async () => {
    const queue = randomUUID();
    const made = [await enqueued(queue), await enqueued(queue), await enqueued(queue)];

    const got = await Array.fromAsync(jobs.dequeueJob({ queue, maxJobs: 2 }));
    const rest = await Array.fromAsync(jobs.dequeueJob({ queue, maxJobs: 2 }));

    assert.deepEqual([...got, ...rest].map(({ job }) => job?.jobId), made);
    assert.equal(new Set([...got, ...rest].map(({ taskToken }) => taskToken)).size, 3);
    assert.deepEqual(await Array.fromAsync(jobs.dequeueJob({ queue }, { timeoutMs: 3_000 })), []);
  });

  test("what is published is read while the stream that publishes is still open", async () => {
    const { jobId, taskToken } = await held();
    const heard = Promise.withResolvers<void>();
    async function* saying() {
      yield START;
      yield output(BYTES);
      await heard.promise;
      yield output("last");
    }

    const publishing = events.publishJobEvents(messages(taskToken, saying()));
    const found: JobEvent[] = [];
    for await (const { event } of events.streamJobEvents({ jobId })) {
      found.push(event ?? assert.fail());
      if (found.length === 2) heard.resolve();
      if (found.length === 3) {
        await publishing;
        await jobs.completeJob({ taskToken, jobResult: { success: true } });
      }
    }

    assert.deepEqual(places(found), [
      [1, 1n, "processStart"],
      [1, 2n, "output"],
      [1, 3n, "output"],
    ]);
    const data = found[1]?.eventData;
    assert.ok(data?.case === "output");
    assert.deepEqual([...data.value.output], [...BYTES]);
    assert.equal(data.value.streamType, StreamType.STDERR);
  });

  test("a monitor reads from a sequence inside a batch, and only what it asked for", async () => {
    const { jobId, taskToken } = await held();
    const outputs = ["a", "b", "c"].map((text) => ({ output: Buffer.from(text) }));
    const value = { outputs, startSequence: 2n, endSequence: 4n };
    const batch: Event = {
      eventType: EventType.OUTPUT_BATCH,
      eventData: { case: "outputBatch", value },
    };
    await events.publishJobEvents(messages(taskToken, [START]));
    await events.publishJobEvents(messages(taskToken, [batch], 2n));
    await events.publishJobEvents(messages(taskToken, [output("d")], 5n));
    await jobs.completeJob({ taskToken, jobResult: { success: true } });

    const [trimmed, after] = await read({ jobId, fromSequence: 3n });
    const filtered = await read({ jobId, eventFilter: [EventType.OUTPUT] });

    assert.ok(trimmed?.eventData.case === "outputBatch");
    const texts = trimmed.eventData.value.outputs.map((one) => one.output);
    assert.equal(Buffer.concat(texts).toString(), "bc");
    assert.deepEqual(places([trimmed, after]), [
      [1, 3n, "outputBatch"],
      [1, 5n, "output"],
    ]);
    assert.deepEqual(places(filtered), [[1, 5n, "output"]]);
  });

  test("events that do not rise are refused, and a repeat is stored once", async () => {
    const { jobId, taskToken } = await held();
    const repeated = { ...output("a"), sequence: 2n };
    async function* wrong() {
      yield { taskToken, events: [{ ...START, sequence: 1n }, repeated, repeated] };
    }

    await refused(Code.InvalidArgument, /2.*2/, () => events.publishJobEvents(wrong()));
    for (const _ of [1, 2]) {
      await events.publishJobEvents(messages(taskToken, [START, output("a")]));
    }
    await jobs.completeJob({ taskToken, jobResult: { success: true } });

    assert.deepEqual(places(await read({ jobId })), [
      [1, 1n, "processStart"],
      [1, 2n, "output"],
    ]);
  });

  test("an id that is no UUID is an invalid argument", async () => {
    for (const call of [
      () => jobs.getJob({ jobId: "nonsense" }),
      () => read({ jobId: "nonsense" }),
      () => jobs.enqueueJob({ requestId: "nonsense", jobParams: { command: "true" } }),
    ]) {
      await refused(Code.InvalidArgument, /_id must be a UUID, such as /, call);
    }
  });

  test("an unknown job is not found", async () => {
    const jobId = randomUUID();

    await refused(Code.NotFound, new RegExp(jobId), () => jobs.getJob({ jobId }));
    await refused(Code.NotFound, new RegExp(jobId), () => read({ jobId }));
  });

  test("a task token that has expired, or was never one, is not found", async () => {
    const { queue, taskToken } = await held(1);
    const [again] = await Array.fromAsync(jobs.dequeueJob({ queue }));
    assert.equal(again?.attempt, 2);

    for (const token of [taskToken, randomUUID()]) {
      const done = { taskToken: token, jobResult: { success: true } };
      for (const call of [
        () => jobs.updateJob({ taskToken: token }),
        () => events.publishJobEvents(messages(token, [START])),
        () => jobs.completeJob(done),
      ]) {
        await refused(Code.NotFound, /[Tt]oken/, call);
      }
    }
  });

  test("an illegal transition is a failed precondition", async () => {
    const { jobId, taskToken } = await held();
    await jobs.completeJob({ taskToken, jobResult: { success: true } });

    await refused(Code.FailedPrecondition, /succeeded/, () => jobs.cancelJob({ jobId }));
  });

  test("an over-full queue is exhausted, and others are not", async () => {
    const queue = randomUUID();
    for (let n = 0; n < Number(process.env.QUEUE_LIMIT); n++) await enqueued(queue);

    await refused(Code.ResourceExhausted, /at most/, () => enqueued(queue));
    await enqueued(randomUUID());
  });

  test("a job has ten streams, and one that is abandoned makes room for another", async () => {
    const { jobId, taskToken } = await held();
    await events.publishJobEvents(messages(taskToken, [START]));
    const readers = Array.from({ length: 10 }, () => new AbortController());
    const first = await Promise.all(
      readers.map(async ({ signal }) => {
        const stream = events.streamJobEvents({ jobId }, { signal })[Symbol.asyncIterator]();
        const { value } = await stream.next();
        return { stream, event: value?.event };
      }),
    );
    assert.deepEqual(new Set(first.map(({ event }) => event?.sequence)), new Set([1n]));
    await refused(Code.ResourceExhausted, /streams already/, () => read({ jobId }));

    readers[0]?.abort();
    await refused(Code.Canceled, /aborted/, async () => first[0]?.stream.next());

    const deadline = Date.now() + 30_000;
    const open = first.slice(1).map(({ stream }) => stream);
    while (open.length < 10) {
      const stream = events.streamJobEvents({ jobId })[Symbol.asyncIterator]();
      const { value } = await stream.next().catch(() => ({ value: undefined }));
      if (value?.event?.sequence === 1n) open.push(stream);
      assert.ok(Date.now() < deadline, "an abandoned stream keeps its place");
      await sleep(50);
    }
    await jobs.completeJob({ taskToken, jobResult: { success: true } });
    for (const stream of open) assert.equal((await stream.next()).done, true);
  });

  test("whoever abandons a long poll takes no job with them", async () => {
    const queue = randomUUID();
    const leaving = new AbortController();
    const poll = () => Array.fromAsync(jobs.dequeueJob({ queue }, leaving));
    const polls = [1, 2, 3].map(() => refused(Code.Canceled, /aborted/, poll));
    await sleep(300);
    leaving.abort();
    await Promise.all(polls);

    const jobId = await enqueued(queue);
    const [granted] = await Array.fromAsync(jobs.dequeueJob({ queue }));

    // The server may hear of the job before it hears that they are gone: then it takes the job back.
    assert.equal(granted?.job?.jobId, jobId);
  });

  test("a deadline ends a stream", async () => {
    const { jobId } = await held();

    await refused(Code.DeadlineExceeded, /timed out/, () =>
      Array.fromAsync<unknown>(events.streamJobEvents({ jobId }, { timeoutMs: 300 })),
    );
  });
});
