// pg-boss on PostgreSQL: `boss.work()` with large batches, woken by NOTIFY, a queue for each kind of job.
import * as side from './side.mjs'

const { PgBoss } = side.require('pg-boss')
const { Client } = side.require('pg')
const CHUNK = 5000
const QUEUE = { notify: true, retryLimit: 5, retryDelay: 0 }
const HELD = { ...QUEUE, heartbeatSeconds: 10 }
const BOSS = { useListenNotify: true, superviseIntervalSeconds: 2, monitorIntervalSeconds: 2 }
const WORK = { pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 }
const NOOP = { batchSize: 5000, burstWhenBatchFull: true, priority: false, orderByCreatedOn: false }

async function started(options = { supervise: false }) {
  const boss = new PgBoss({ connectionString: side.URL, schedule: false, ...options })
  boss.on('error', error => console.error(String(error)))
  await boss.start()
  return boss
}

async function query(text, values = []) {
  const client = new Client({ connectionString: side.URL })
  await client.connect()
  return (await client.query(text, values)).rows
}

// Copies of a job that its own send made; only the ids are new.
async function fill(jobs) {
  const id = await (await started()).send('noop', {})
  const [{ columns }] = await query(
    "SELECT string_agg(column_name, ', ') AS columns FROM information_schema.columns " +
    "WHERE table_schema = 'pgboss' AND table_name = 'job' AND column_name <> 'id'")
  await query(
    `INSERT INTO pgboss.job (id, ${columns}) SELECT gen_random_uuid(), ${columns} ` +
    "FROM pgboss.job, generate_series(2, $1::int) WHERE name = 'noop' AND id = $2", [jobs, id])
}

await side.main({
  settings: () => `2 worker processes, ${JSON.stringify(NOOP)} (so in no order), LISTEN/NOTIFY, ` +
    `poll every 0.5 s, monitor every 2 s; insert by ${CHUNK}`,
  recovery: () => 'heartbeatSeconds 10, the least it allows, looked for every 2 s',
  setup: async () => {
    const boss = await started()
    await boss.createQueue('noop', QUEUE)
    await boss.createQueue('timed', QUEUE)
    await boss.createQueue('holds', HELD)
  },
  work: async () => {
    const boss = await started(BOSS)
    process.once('SIGTERM', () => boss.stop().finally(() => process.exit(0)))
    await boss.work('noop', { ...WORK, ...NOOP }, async jobs => jobs.forEach(() => side.count()))
    await boss.work('timed', WORK, async ([job]) => side.waited(job.data.sent))
    await boss.work('holds', WORK, async () => side.hold())
  },
  bulk: async jobs => {
    const boss = await started()
    const chunk = Array.from({ length: CHUNK }, () => ({ data: {} }))
    return side.bulk(side.chunks(jobs, CHUNK), size => boss.insert('noop', chunk.slice(0, size)))
  },
  single: async jobs => {
    const boss = await started()
    return side.single(jobs, () => boss.send('noop', {}))
  },
  clients: async (many, jobs) => {
    const boss = await started({ supervise: false, max: 20 })
    return side.clients(many, jobs, () => boss.send('noop', {}))
  },
  waits: async times => {
    const boss = await started()
    await side.waits(times, sent => boss.send('timed', { sent }))
  },
  hold: async () => void (await (await started()).send('holds', {})),
  left: async () => {
    const [{ jobs }] = await query("SELECT count(*) AS jobs FROM pgboss.job WHERE state < 'completed'")
    return Number(jobs)
  },
  fill
})
