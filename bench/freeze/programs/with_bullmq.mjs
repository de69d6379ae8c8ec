// BullMQ on Redis: a Worker with short locks.
import * as handler from './handler.mjs'

const { Job, Queue, Worker } = handler.require('bullmq')
const LIMITS = { lockDuration: 2000, stalledInterval: 1000, maxStalledCount: 5 }
const connection = { url: handler.URL, maxRetriesPerRequest: null }
const queue = () => new Queue('waits', { connection })

await handler.main({
  settings: () => JSON.stringify(LIMITS),
  work: () => {
    const waits = job => handler.job(job.attemptsStarted ?? null, job.id)
    const worker = new Worker('waits', waits, { connection, ...LIMITS, name: handler.WORKER })
    worker.on('error', error => console.error(String(error)))
    worker.on('failed', (job, error) => console.error(String(error)))
  },
  enqueue: async () => (await queue().add('waits', {})).id,
  state: async id => {
    const job = await Job.fromId(queue(), id)
    const state = await job.getState()
    return { name: state, over: ['completed', 'failed'].includes(state), result: job.returnvalue ?? null }
  }
})
