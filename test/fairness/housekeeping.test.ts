import pg from 'pg'
import t, { type Test } from 'tap'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { pruneHistory } from '../../src/updates/prune.js'
import {
  compared,
  FULL,
  fairService,
  peakResidentBytes,
  RESIDENT_BYTES_MAX,
  requireAllServed,
  watchReadiness,
} from './beside.js'
import { QuietCallers, type Slot } from './quiet.js'
import { type FairnessWorld, fairnessWorld } from './world.js'

const ROWS = FULL ? 3_000_000 : 10_000
const RESOURCES = FULL ? 3_000 : 25
const DEFINITIONS = FULL ? 500 : 10
const SLOT_MS = FULL ? 5_000 : 1_000
/** For the control so many are enough. */
const CONTROL_SLOTS_MAX = FULL ? 400 : 3
const SLOTS_MAX = FULL ? 400 : 100
const ATTEMPTS = 3

/** What a process of the service said when its first run was over. */
const PRUNED = /"auditRows":\d+.*history beyond its retention was removed/

const world = await fairnessWorld(t)

t.test(`row 12: the first run over ${ROWS} audit rows, at the start and by another process at once`, async t => {
  const { client, url, victims } = world
  await servedSince(t, world, log => log.includes('listening')) // what they store ages
  const comparisons: string[] = []
  let isFair = false
  for (let attempt = 0; attempt < ATTEMPTS && !isFair; attempt++) {
    await addHistory(world, attempt)
    const beside = await servedSince(t, world, log => PRUNED.test(log))
    const slotsOfControl = Math.min(beside.length, CONTROL_SLOTS_MAX)
    const control = await servedSince(t, world, (_, slots) => slots === slotsOfControl) // nothing is left to remove
    const { isFair: isFairNow, text } = compared(control, beside)
    isFair = isFairNow
    comparisons.push(`${beside.length} slots: ${text}`)
  }
  t.ok(isFair, comparisons.join('; '))
  t.comment(comparisons.join('; '))

  const old = async () => {
    const { rows } = await client.query<{ gone: number; written: number; definitions: number }>(
      `select count(*) filter (where resource_id <> all($1))::integer as gone,
        count(*) filter (where resource_id = any($1))::integer as written,
        (select count(*)::integer from tool_definition where size_bytes = 100002) as definitions
      from audit where at < now() - interval '400 days'`,
      [victims.map(({ agentId }) => agentId)],
    )
    return rows[0]
  }
  t.match(await old(), { gone: 0 })
  // What somebody held is left to the next run.
  await prune(url)
  t.strictSame(await old(), { gone: 0, written: 0, definitions: 0 })
})

/** Prunes as another instance of the service does. */
async function prune(url: string): Promise<void> {
  const config = readConfig({})
  const database = openUrl(url, config)
  await pruneHistory(database.db, config.history)
  await database.close()
}

/** Starts the service and prunes beside it, and has the quiet callers write until its log and the number of slots say that it is enough. */
async function servedSince(
  t: Test,
  world: FairnessWorld,
  isOver: (log: string, slots: number) => boolean,
): Promise<Slot[]> {
  const service = await fairService(t, world)
  const pruned = prune(world.url)
  const quiet = new QuietCallers(world, service, { owners: world.victims })
  const readiness = watchReadiness(service)
  const slots: Slot[] = []
  do slots.push(await quiet.serve(SLOT_MS))
  while (!isOver(service.log, slots.length) && slots.length < SLOTS_MAX)
  await pruned
  t.ok(isOver(service.log, slots.length), `over within ${slots.length} slots`)
  t.notMatch(service.log, /could not be pruned/)
  requireAllServed(t, slots)
  t.strictSame(await readiness.end(), [], 'ready throughout')
  const peak = peakResidentBytes(service.pid)
  t.ok(peak < RESIDENT_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
  await quiet.close()
  await service.stop('SIGKILL') // an orderly end gives balancers three seconds
  return slots
}

/** Old audit rows of agents that are gone and of those that the quiet callers write, and definitions that nothing refers to. */
async function addHistory({ client, victims }: FairnessWorld, attempt: number): Promise<void> {
  await client.query(
    `insert into audit (resource_kind, resource_id, version_before, version_after, at, actor, request_id,
      client_address, fields, difference, difference_bytes, difference_hash, previous_hash, hash)
    select 'persona', 1000000 * ($3::integer + 1) + r, v - 1, v, now() - interval '500 days', 'alice@example.com', 'r',
      '127.0.0.1', '{description}', '[]', 2, '\\x00', '\\x00', '\\x00'
    from generate_series(1, $1::integer) r, generate_series(1, $2::integer) v`,
    [RESOURCES, ROWS / RESOURCES, attempt],
  )
  await client.query(
    `update audit set at = now() - interval '500 days' where resource_kind = 'persona' and resource_id = any($1)`,
    [victims.map(({ agentId }) => agentId)],
  )
  await client.query(
    `insert into tool_definition (hash, content, size_bytes)
    select sha256((n || ' of ' || $2::integer)::bytea), to_json(repeat('x', 100000)), 100002
    from generate_series(1, $1::integer) n`,
    [DEFINITIONS, attempt],
  )
}

t.test("a token's last use waits for nobody who has its row", async t => {
  const service = await fairService(t, world)
  const quiet = new QuietCallers(world, service, { owners: world.victims })
  const holder = new pg.Client({ connectionString: world.url })
  await holder.connect()
  t.teardown(() => holder.end())
  await holder.query(`update token set last_used_at = now() - interval '1 hour'`)
  await holder.query('begin')
  await holder.query('select from token for update')
  const served = await quiet.serve(SLOT_MS)
  await quiet.close()
  requireAllServed(t, [served])
  t.ok(served.latenciesMs.length > 0, `${served.latenciesMs.length} updates while the rows are held`)
  const { rows } = await holder.query(`select from token where last_used_at > now() - interval '10 minutes'`)
  t.equal(rows.length, 0, 'left to a later use')
  await holder.query('rollback')
})
