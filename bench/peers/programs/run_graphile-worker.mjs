// Graphile Worker on PostgreSQL: `run()`, with its local queue where PEERS_VARIANT says "local queue".
import * as side from './side.mjs'

const { Logger, makeWorkerUtils, run } = side.require('graphile-worker')
const { Client } = side.require('pg')
const CHUNK = 5000
const LOCAL = side.VARIANT === 'local queue'
const WORKER = {
  concurrentJobs: LOCAL ? 96 : 24,
  maxPoolSize: 25,
  localQueue: { size: LOCAL ? 5000 : -1 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0
}
const TASKS = {
  noop: () => side.count(),
  timed: ({ sent }) => side.waited(sent),
  holds: () => side.hold()
}
// It would write lines for each job.
const logger = new Logger(() => (level, message) => level === 'error' && console.error(message))

const utils = (maxPoolSize = 4) => makeWorkerUtils({ connectionString: side.URL, maxPoolSize, logger })

async function query(text, values = []) {
  const client = new Client({ connectionString: side.URL })
  await client.connect()
  return (await client.query(text, values)).rows
}

// Copies of a job that its own addJob made; only the ids are new.
async function fill(jobs) {
  const { id } = await (await utils()).addJob('noop', {})
  const [{ columns }] = await query(
    "SELECT string_agg(column_name, ', ') AS columns FROM information_schema.columns " +
    "WHERE table_schema = 'graphile_worker' AND table_name = '_private_jobs' " +
    "AND column_name <> 'id' AND is_generated = 'NEVER'")
  await query(
    `INSERT INTO graphile_worker._private_jobs (${columns}) SELECT ${columns} ` +
    'FROM graphile_worker._private_jobs, generate_series(2, $1::int) WHERE id = $2', [jobs, id])
}

await side.main({
  settings: () => `2 worker processes, ${JSON.stringify(WORKER)}; addJobs by ${CHUNK}`,
  recovery: () => 'a lock is void after 4 hours, which is no option; before that an operator must call ' +
    'forceUnlockWorkers()',
  setup: async () => void (await (await utils()).migrate()),
  work: async () => {
    const preset = { worker: { ...WORKER, connectionString: side.URL, pollInterval: 500 } }
    await (await run({ preset, logger, taskList: TASKS })).promise
  },
  bulk: async jobs => {
    const tools = await utils()
    const chunk = Array.from({ length: CHUNK }, () => ({ identifier: 'noop', payload: {} }))
    return side.bulk(side.chunks(jobs, CHUNK), size => tools.addJobs(chunk.slice(0, size)))
  },
  single: async jobs => {
    const tools = await utils()
    return side.single(jobs, () => tools.addJob('noop', {}))
  },
  clients: async (many, jobs) => {
    const tools = await utils(20)
    return side.clients(many, jobs, () => tools.addJob('noop', {}))
  },
  waits: async times => {
    const tools = await utils()
    await side.waits(times, sent => tools.addJob('timed', { sent }))
  },
  hold: async () => void (await (await utils()).addJob('holds', {})),
  left: async () => {
    const [{ jobs }] = await query('SELECT count(*) AS jobs FROM graphile_worker._private_jobs')
    return Number(jobs)
  },
  fill
})
