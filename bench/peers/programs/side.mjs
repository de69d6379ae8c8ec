// What every program in Node shares: the verbs the frame asks for, the three handlers, the clients.
import fs from 'node:fs'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'

export const require = createRequire(`${process.env.NODE_MODULES ?? '.'}/here.js`)
export const { PEERS_FOLDER: FOLDER, PEERS_URL: URL } = process.env
export const { PEERS_WORKER: WORKER = 'w-0', PEERS_VARIANT: VARIANT = '' } = process.env
const WARM_UP = 20
const STORE_MS = 10

// CLOCK_MONOTONIC in seconds, the clock that all processes of the machine share.
export const now = () => Number(process.hrtime.bigint()) / 1e9

// The whole of the `noop` handler. Stored by a timer: count, first and latest moment, as in side.py.
const counted = Buffer.alloc(24)
let jobs = 0, first = 0, last = 0, file, storing = false
export function count() {
  last = now()
  if (jobs++ === 0) first = last
  if (!storing) {
    storing = true
    setTimeout(store, jobs === 1 ? 0 : STORE_MS)
  }
}

function store() {
  storing = false
  file ??= fs.openSync(`${FOLDER}/count-${process.pid}`, 'w')
  counted.writeBigInt64LE(BigInt(jobs), 0)
  counted.writeDoubleLE(first, 8)
  counted.writeDoubleLE(last, 16)
  fs.writeSync(file, counted, 0, 24, 0)
}

// The whole of the `timed` handler; `sent` is what `now()` gave just before the enqueue.
export function waited(sent) {
  fs.appendFileSync(`${FOLDER}/waits-${process.pid}`, `${((now() - Number(sent)) * 1000).toFixed(4)}\n`)
}

// The whole of the `holds` handler: say that it began, then wait for the file `go`.
export async function hold() {
  const line = { worker: WORKER, pid: process.pid, at: now() }
  fs.appendFileSync(`${FOLDER}/held.jsonl`, JSON.stringify(line) + '\n')
  while (!fs.existsSync(`${FOLDER}/go`)) await sleep(50)
}

// Sizes that add up to `total`.
export function chunks(total, size) {
  const sizes = []
  for (let left = Number(total); left > 0; left -= size) sizes.push(Math.min(size, left))
  return sizes
}

// `enqueueMany(size)` for each size; the first is the warm-up when there are more than three.
export async function bulk(sizes, enqueueMany) {
  const warm = sizes.length > 3 ? 1 : 0
  let seconds = 0
  for (const [n, size] of sizes.entries()) {
    const began = now()
    await enqueueMany(size)
    if (n >= warm) seconds += now() - began
  }
  return { seconds, count: sizes.slice(warm).reduce((sum, size) => sum + size, 0) }
}

// `enqueue()` again and again, after some to warm up.
export async function single(total, enqueue) {
  for (let n = 0; n < WARM_UP; n++) await enqueue()
  const began = now()
  for (let n = 0; n < Number(total); n++) await enqueue()
  return { seconds: now() - began, count: Number(total) }
}

// `many` concurrent clients that each await `enqueue()` again and again.
export async function clients(many, total, enqueue) {
  const each = Math.max(1, Math.floor(Number(total) / Number(many)))
  const waits = []
  const client = async (times) => {
    for (let n = 0; n < times; n++) {
      const began = now()
      await enqueue()
      waits.push(now() - began)
    }
  }
  const all = (times) => Promise.all(Array.from({ length: Number(many) }, () => client(times)))
  await all(1)
  waits.length = 0
  const began = now()
  await all(each)
  const seconds = now() - began
  waits.sort((a, b) => a - b)
  const p99 = waits[Math.min(waits.length - 1, Math.floor(waits.length * 0.99))]
  return { seconds, count: waits.length, p99_ms: p99 * 1000 }
}

// `enqueue(sent)` now and then, where `sent` is the moment just before.
export async function waits(times, enqueue) {
  for (let n = 0; n < Number(times); n++) {
    await sleep(30 + Math.random() * 60)
    await enqueue(now())
  }
}

// Do the verb of the command line and print its answer as JSON; null where there is no such verb.
export async function main(verbs) {
  const [verb, ...words] = process.argv.slice(2)
  const act = verb === 'lefts' ? () => lefts(verbs.left) : verbs[verb]
  const answer = (await act?.(...words)) ?? null
  if (verb === 'work') return
  fs.writeSync(1, JSON.stringify(answer) + '\n')
  process.exit(0)
}

// Say `ready`; after a line from the frame ask the store until nothing is left, and answer when it was asked.
async function lefts(left) {
  await left()
  fs.writeSync(1, 'ready\n')
  await once(process.stdin, 'data')
  for (;;) {
    const asked = now()
    if (!Number(await left())) return asked
    await sleep(5)
  }
}
