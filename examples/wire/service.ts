// The two services of job.v1 at one address.

import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { JobEventsService, JobService } from "./generated/job/v1/job_pb.ts";

/** Clients of the server there. If it wants a key, they take it from HOLDFAST_KEY. */
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

/** The answer to a call that may be sent again as it is, for as long as no server answers. */
export async function patiently<T>(call: () => Promise<T>): Promise<T> {
  while (true) {
    try {
      return await call();
    } catch (error) {
      if (ConnectError.from(error).code !== Code.Unavailable) throw error;
      await sleep(1000);
    }
  }
}
