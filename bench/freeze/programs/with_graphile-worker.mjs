// Graphile Worker on PostgreSQL: `run()`. Its limit of four hours is made to pass by setting `locked_at` back.
import * as handler from './handler.mjs'

const { makeWorkerUtils, run } = handler.require('graphile-worker')
const { Client } = handler.require('pg')
const SWEEP = { minResetLockedInterval: 1000, maxResetLockedInterval: 2000 }

async function query(text, values = []) {
  const client = new Client({ connectionString: handler.URL })
  await client.connect()
  return (await client.query(text, values)).rows
}

const utils = () => makeWorkerUtils({ connectionString: handler.URL })
const waits = async (payload, { job }) => void (await handler.job(job.attempts, String(job.id)))

await handler.main({
  settings: () => `${JSON.stringify(SWEEP)}, polling every 500 ms; the limit of 4 hours is not an option: ` +
    'the frame sets `locked_at` back by 4 hours once w-1 is frozen, and its own sweep does the rest',
  setup: async () => void (await (await utils()).migrate()),
  work: async () => {
    const options = { connectionString: handler.URL, concurrency: 1, pollInterval: 500 }
    await (await run({ ...options, ...SWEEP, taskList: { waits } })).promise
  },
  enqueue: async () => String((await (await utils()).addJob('waits', {}, { maxAttempts: 5 })).id),
  pass_time: () => query(
    "UPDATE graphile_worker._private_jobs SET locked_at = locked_at - interval '4 hours 1 minute'"),
  state: async id => {
    const [job] = await query('SELECT * FROM graphile_worker.jobs WHERE id = $1', [id])
    if (!job) return { name: 'row deleted', over: true, result: null }
    return { name: job.locked_at ? 'locked' : 'waiting', over: false, result: null }
  }
})
