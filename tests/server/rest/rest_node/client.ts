// A client whose types were made of /openapi.json: a job through its life, and two refusals.

import assert from "node:assert/strict";

import createClient from "openapi-fetch";

import type { components, paths } from "./schema.d.ts";

type Job = components["schemas"]["Job"];
type Problem = components["schemas"]["Problem"];

const { SERVICE_URL: baseUrl = "", SERVICE_KEY: key = "" } = process.env;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

const made = await client.POST("/v1/jobs", {
  params: { header: { "Idempotency-Key": "typed-once" } },
  body: { spec: { kind: "report", queue: "typed", payload: { month: 7 } }, job_id: "typed-7" },
});
const job: Job | undefined = made.data;
assert.equal(made.response.status, 201);
assert.equal(job?.state, "queued");

const claimed = await client.POST("/v1/grants", { body: { queues: ["typed"], owner: "w-1" } });
const grant = claimed.data?.grants[0];
assert.equal(grant?.job.job_id, "typed-7");
const task_token = grant?.task_token ?? "";

const alive = await client.POST("/v1/grants/heartbeat", {
  body: { task_token, progress: { done: 1, total: 2 }, lease: "PT90S" },
});
assert.equal(alive.data?.progress?.total, 2);

const ended = await client.POST("/v1/grants/complete", {
  body: { task_token, success: { result: { pages: 3 } } },
});
assert.deepEqual([ended.data?.state, ended.data?.result], ["succeeded", { pages: 3 }]);

const listed = await client.GET("/v1/jobs", {
  params: { query: { queue: "typed", states: ["succeeded", "failed"] } },
});
assert.deepEqual(listed.data?.jobs.map((one) => one.job_id), ["typed-7"]);

const path = { job_id: "typed-7" };
const read = await client.GET("/v1/jobs/{job_id}", { params: { path } });
assert.deepEqual(read.data, ended.data);

const log = await client.GET("/v1/jobs/{job_id}/logs", { params: { path, query: { limit: 10 } } });
assert.deepEqual(
  log.data?.events.map((event) => event.event_type),
  ["job_queued", "job_claimed", "job_started", "job_succeeded"],
);

const wrong = await client.GET("/v1/jobs/{job_id}", { params: { path: { job_id: "typed-8" } } });
const problem: Problem | undefined = wrong.error;
assert.deepEqual([problem?.status, problem?.type], [404, "urn:holdfast:NotFound"]);
assert.ok(problem?.advice);

// @ts-expect-error: the description knows no such state
const misspelt = await client.GET("/v1/jobs", { params: { query: { states: ["suceeded"] } } });
assert.equal(misspelt.error?.status, 400);

console.log("all of it");
