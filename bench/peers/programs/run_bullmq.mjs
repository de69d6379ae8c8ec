// BullMQ on Redis: a Worker with many jobs at once; completed jobs are removed.
import * as side from './side.mjs'

const { Queue, Worker } = side.require('bullmq')
const CONCURRENCY = 100
const LIMITS = { lockDuration: 10000, stalledInterval: 1000, maxStalledCount: 5 }
const UNFINISHED = ['wait', 'active', 'delayed', 'prioritized']
const connection = { url: side.URL, maxRetriesPerRequest: null }
const queue = new Queue('peers', { connection, defaultJobOptions: { removeOnComplete: true } })

const handlers = {
  noop: async () => side.count(),
  timed: async job => side.waited(job.data),
  holds: () => side.hold()
}

function work() {
  const options = { connection, ...LIMITS, concurrency: CONCURRENCY, name: side.WORKER }
  const worker = new Worker('peers', job => handlers[job.name](job), options)
  worker.on('error', error => console.error(String(error)))
  const stop = async () => {
    await worker.close()
    process.exit(0)
  }
  process.on('SIGTERM', stop)
}

await side.main({
  settings: () => `2 processes, concurrency ${CONCURRENCY}, addBulk of 1,000, removeOnComplete`,
  bulk: total => side.bulk(side.chunks(total, 1000), size =>
    queue.addBulk(Array.from({ length: size }, () => ({ name: 'noop', data: null })))),
  single: total => side.single(total, () => queue.add('noop', null)),
  clients: (many, total) => side.clients(many, total, () => queue.add('noop', null)),
  work,
  waits: times => side.waits(times, sent => queue.add('timed', sent)),
  hold: async () => { await queue.add('holds', null) },
  left: async () => {
    const counts = await queue.getJobCounts(...UNFINISHED)
    return Object.values(counts).reduce((sum, count) => sum + count, 0)
  },
  recovery: () => JSON.stringify(LIMITS)
})
