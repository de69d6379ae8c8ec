// A worker of job.v1: takes one job at a time, runs its command, publishes its output and reports its end.
//
//     node worker.ts [--url http://localhost:8080] [--queue default] [--visibility 300]
//
// Ctrl-C lets it finish its job. If the server requires a key, it is taken from HOLDFAST_KEY.

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import {
  type DequeueJobResponse,
  EventType,
  type JobEventSchema,
  type PublishJobEventsRequestSchema,
  StreamType,
} from "./generated/job/v1/job_pb.ts";
import { connect, withRetries, type Service } from "./service.ts";

type Event = MessageInitShape<typeof JobEventSchema>;
type Publish = MessageInitShape<typeof PublishJobEventsRequestSchema>;
type Child = ChildProcessByStdio<null, Readable, Readable>;

/** One try at one job, from its grant to its end, or until it is taken away. */
class Attempt {
  private readonly service: Service;
  private readonly granted: DequeueJobResponse;
  private readonly visibility: number;
  private readonly over = new AbortController();
  private child: Child | undefined;
  private sequence = 0n;
  private stored: Promise<unknown> = Promise.resolve();

  constructor(service: Service, granted: DequeueJobResponse, visibility: number) {
    this.service = service;
    this.granted = granted;
    this.visibility = visibility;
  }

  /** Return the outcome as text. The job is completed only when all its events are stored. */
  async run(): Promise<string> {
    try {
      const [exitCode] = await Promise.all([this.work(), this.extend()]);
      return `exit code ${exitCode}`;
    } catch (error) {
      return `given up: ${ConnectError.from(error).message}`;
    } finally {
      this.over.abort();
      this.stop("SIGKILL");
    }
  }

  private async work(): Promise<number> {
    const exitCode = await this.execute();
    const jobResult = { success: exitCode === 0, exitCode };
    const { taskToken } = this.granted;
    await withRetries(() => this.service.jobs.completeJob({ taskToken, jobResult }));
    this.over.abort();
    return exitCode;
  }

  /** Renew the hold on the job. NotFound means that it is lost: then `run` kills the process. */
  private async extend(): Promise<void> {
    const { taskToken } = this.granted;
    const request = { taskToken, visibilityTimeoutSeconds: this.visibility };
    while (!this.over.signal.aborted) {
      const response = await withRetries(() => this.service.jobs.updateJob(request));
      if (response.cancelRequested) this.stop("SIGTERM");
      await sleep((this.visibility * 1000) / 3, null, this.over).catch(() => {});
    }
  }

  /** Run the command, and return its exit code. */
  private async execute(): Promise<number> {
    const params = this.granted.job?.jobParams;
    const child = spawn(params?.command ?? "", params?.args ?? [], {
      env: { ...process.env, ...params?.environment },
      cwd: params?.workingDirectory || undefined,
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    try {
      await once(child, "spawn");
    } catch (error) {
      const value = { errorMessage: String(error) };
      await this.publish(EventType.PROCESS_ERROR, { case: "processError", value });
      return 127;
    }
    this.child = child;
    return await this.listen(child);
  }

  /** Publish everything from the start of the process to its end. */
  private async listen(child: Child): Promise<number> {
    const { pid } = child;
    const closed = once(child, "close");
    const start = { pid, startedAt: timestampNow() };
    await Promise.all([
      // Both pipes are read from the first moment on: Node discards what is still unread at the end.
      this.publish(EventType.PROCESS_START, { case: "processStart", value: start }),
      this.pump(child.stdout, StreamType.STDOUT),
      this.pump(child.stderr, StreamType.STDERR),
    ]);
    const [code, signal] = (await closed) as [number | null, NodeJS.Signals];
    const exitCode = code ?? 128 + constants.signals[signal];
    await this.publish(EventType.PROCESS_END, { case: "processEnd", value: { pid, exitCode } });
    return exitCode;
  }

  /** Publish a stream. What comes while an event is being stored waits in the pipe. */
  private async pump(pipe: Readable, streamType: StreamType): Promise<void> {
    for await (const output of pipe) {
      await this.publish(EventType.OUTPUT, { case: "output", value: { output, streamType } });
    }
  }

  /** Publish an event, one after the other. Sent again with its sequence, it is stored once. */
  private publish(eventType: EventType, eventData: Event["eventData"]): Promise<unknown> {
    const event = { sequence: ++this.sequence, timestamp: timestampNow(), eventType, eventData };
    this.stored = this.stored.then(() =>
      withRetries(() => this.service.events.publishJobEvents(this.messages([event]))),
    );
    return this.stored;
  }

  private async *messages(events: Event[]): AsyncIterable<Publish> {
    for (const event of events) yield { taskToken: this.granted.taskToken, events: [event] };
  }

  /** Send the signal to the process, and to all that it has started. */
  private stop(signal: NodeJS.Signals): void {
    const { pid, exitCode, signalCode } = this.child ?? {};
    if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, signal);
  }
}

const { values } = parseArgs({
  options: {
    url: { type: "string", default: "http://localhost:8080" },
    queue: { type: "string", default: "default" },
    visibility: { type: "string", default: "300" },
  },
});
const service = connect(values.url);
const visibility = Number(values.visibility);
const request = { queue: values.queue, maxJobs: 1, visibilityTimeoutSeconds: visibility };

let stopping = false;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (stopping = true));
while (!stopping) {
  // The server waits a few seconds for a job; a stream without one means that there is none.
  const grants = await withRetries(() => Array.fromAsync(service.jobs.dequeueJob(request)));
  for (const granted of grants) {
    console.log(`${granted.job?.jobId} attempt ${granted.attempt}`);
    console.log(`${granted.job?.jobId} ${await new Attempt(service, granted, visibility).run()}`);
  }
}
