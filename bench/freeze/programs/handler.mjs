// The job that every system in Node runs here, and the verbs by which the frame talks to a program.
import fs from 'node:fs'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'

export const require = createRequire(`${process.env.NODE_MODULES ?? '.'}/here.js`)
export const { FREEZE_FOLDER: FOLDER, FREEZE_URL: URL, FREEZE_WORKER: WORKER } = process.env

// Begin, wait for the file `go-<worker>`, end. `number` is whatever the system counts runs by.
export async function job(number = null, jobId = null) {
  tell('begin', { number, job_id: jobId })
  while (!fs.existsSync(`${FOLDER}/go-${WORKER}`)) await sleep(50)
  tell('end', { job_id: jobId })
  return `result of ${WORKER}`
}

function tell(what, more) {
  const line = { worker: WORKER, pid: process.pid, what, at: Date.now() / 1000, ...more }
  fs.appendFileSync(`${FOLDER}/told.jsonl`, JSON.stringify(line) + '\n')
}

// `setup`, `work`, `enqueue`, `state <id>`, `settings`: the answer is the last line, as JSON.
export async function main(verbs) {
  const [verb, ...words] = process.argv.slice(2)
  const answer = (await verbs[verb]?.(...words)) ?? null
  if (verb === 'work') return
  fs.writeSync(1, JSON.stringify(answer) + '\n')
  process.exit(0)
}
