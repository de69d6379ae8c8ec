// The two services of job.v1 at one address.

import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { JobEventsService, JobService } from "./generated/job/v1/job_pb.ts";

/** Return clients of the server at this URL. If it requires a key, that is taken from HOLDFAST_KEY. */
export function connect(url: string) {
  const key = process.env.HOLDFAST_KEY;
  const withKey: Interceptor = (next) => (request) => {
    if (key) request.header.set("Authorization", `Bearer ${key}`);
    return next(request);
  };
  const transport = createConnectTransport({
    baseUrl: url,
    httpVersion: "1.1",
    interceptors: [withKey],
  });
  return {
    jobs: createClient(JobService, transport),
    events: createClient(JobEventsService, transport),
  };
}

export type Service = ReturnType<typeof connect>;

/** Return the response to a call; while the server is unavailable, send the call again unchanged. */
export async function withRetries<T>(call: () => Promise<T>): Promise<T> {
  while (true) {
    try {
      return await call();
    } catch (error) {
      if (ConnectError.from(error).code !== Code.Unavailable) throw error;
      await sleep(1000);
    }
  }
}
