// A monitor of job.v1: prints the output of a job, live or afterwards, and exits with its exit code.
//
//     node monitor.ts JOB_ID [--url http://localhost:8080]
//
// If the server requires a key, it is taken from HOLDFAST_KEY.

import { parseArgs } from "node:util";
import { ConnectError } from "@connectrpc/connect";
import type { JobEvent } from "./generated/job/v1/job_pb.ts";
import { connect, withRetries } from "./service.ts";

/** The position in the job's events, and the last exit code. */
class Monitor {
  exitCode: number | undefined;
  private attempt = 0;
  private sequence = 0n;

  /** Read until the server ends the stream, because the job has ended. */
  async follow(url: string, jobId: string): Promise<void> {
    const { events } = connect(url);
    await withRetries(async () => {
      for await (const { event } of events.streamJobEvents({ jobId })) if (event) this.show(event);
    });
  }

  /** Sequences start at 1 in every attempt. What was seen before the server went away is skipped. */
  private show({ attempt, sequence, eventData }: JobEvent): void {
    if (attempt < this.attempt || (attempt === this.attempt && sequence <= this.sequence)) return;
    this.attempt = attempt;
    this.sequence = sequence;
    switch (eventData.case) {
      case "output":
        process.stdout.write(eventData.value.output);
        break;
      case "outputBatch":
        for (const item of eventData.value.outputs) process.stdout.write(item.output);
        break;
      case "processError":
        console.error(eventData.value.errorMessage);
        break;
      case "processEnd":
        this.exitCode = eventData.value.exitCode;
        console.error(`exit code ${this.exitCode}`);
    }
  }
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { url: { type: "string", default: "http://localhost:8080" } },
});
const [jobId] = positionals;
if (jobId === undefined) {
  console.error("Which job? node monitor.ts JOB_ID");
  process.exit(2);
}
const monitor = new Monitor();
try {
  await monitor.follow(values.url, jobId);
  if (monitor.exitCode === undefined) console.error("The job ended without running to its end.");
} catch (error) {
  console.error(ConnectError.from(error).message);
}
process.exitCode = monitor.exitCode ?? 1;
