// pg-boss on PostgreSQL: `boss.work()` with a heartbeat.
import * as handler from './handler.mjs'

const { PgBoss } = handler.require('pg-boss')
const BOSS = { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 }
const QUEUE = { heartbeatSeconds: 10, retryLimit: 5, retryDelay: 0 }

async function started(options) {
  const boss = new PgBoss({ connectionString: handler.URL, schedule: false, ...options })
  boss.on('error', error => console.error(String(error)))
  await boss.start()
  return boss
}

const once = { supervise: false }

await handler.main({
  settings: () => `${JSON.stringify(BOSS)}, queue ${JSON.stringify(QUEUE)} (10 s is the least)`,
  setup: async () => void (await (await started(once)).createQueue('waits', QUEUE)),
  work: async () => {
    const boss = await started(BOSS)
    const waits = async ([job]) => handler.job(job.retryCount ?? null, job.id)
    await boss.work('waits', { pollingIntervalSeconds: 0.5, includeMetadata: true }, waits)
  },
  enqueue: async () => (await started(once)).send('waits', {}),
  state: async id => {
    const [job] = await (await started(once)).findJobs('waits', { id })
    if (!job) return { name: 'gone', over: true, result: null }
    const over = ['completed', 'failed', 'cancelled'].includes(job.state)
    return { name: job.state, over, result: job.output?.value ?? null }
  }
})
