/**
 * A new key from beginning to end, as an operator does it: the service runs with the new key first, requests go on, the rotation
 * is killed twice and started again, and the old key is taken away. 1,000 header values; 20,000 with `TEST_CAMPAIGN=full`.
 */
import type { ChildProcess } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { keyStatus, type Rotation } from '../../src/admin/keys.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import type { ServiceDatabase } from '../../src/db/transaction.js'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, type KeyRing, parseKeyRing } from '../../src/secrets/key-ring.js'
import { fingerprint, maskOf } from '../../src/secrets/mask.js'
import { openVault, requireDeploymentKey } from '../../src/secrets/vault.js'
import { agentctl, startAgentctl } from '../cli/agentctl.js'
import { Cluster } from '../faults/cluster.js'
import { definition } from '../faults/load.js'
import { ServiceProcess } from '../faults/service.js'
import { makeWorld, range } from '../faults/world.js'
import { only, repetitions } from '../updates/stored-state.js'
import { type Header, type LoadedAgent, type LoadedTool, newSecret, SECRET_MARKER, SecretLoad } from './secret-load.js'

const TOOLS = repetitions({ few: 100, full: 2_000 })
const HEADERS = 10
const VALUES = TOOLS * HEADERS
const AGENTS = 10
const FIRST_ID = 1_000
const TOOLS_OF_AGENT = 10
/** The rotation is killed when it has done these shares of the tools. */
const KILLED_AT = [0.2, 0.5]

const OLD_KEY = generateKey('old')
const NEW_KEY = generateKey('new')

if (process.env.TEST_CAMPAIGN === 'full') t.setTimeout(600_000)

t.test('rotation under load: every request 200, killed it goes on, then the old key is not needed', async t => {
  const cluster = await Cluster.create()
  t.teardown(() => cluster.remove())
  const url = cluster.url()
  const token = await makeWorld(url)
  const database = openUrl(url, readConfig({ STATEMENT_TIMEOUT_MS: '600000' }))
  t.teardown(() => database.close())
  const { tools, agents } = await seed(database)
  const both = { SECRET_KEYS: `${NEW_KEY} ${OLD_KEY}` }
  const valuesUnder = async (id: string) => {
    const { keys } = await keyStatus(database.db, parseKeyRing(both.SECRET_KEYS))
    return keys.find(key => key.id === id)?.values ?? 0
  }
  t.equal(await valuesUnder('old'), VALUES)

  const service = await ServiceProcess.start({ DATABASE_URL: url, ...both })
  t.teardown(() => service.stop('SIGKILL'))
  const load = new SecretLoad({ port: service.port, token, tools, agents })
  load.start()
  const servedBefore = load.requests
  const startedAt = performance.now()
  for (const share of KILLED_AT) {
    const { child, answer } = startAgentctl({ url, args: ['keys', 'rotate'], env: both })
    await follow(database, load, child, share * TOOLS)
    child.kill('SIGKILL')
    t.equal((await answer).status, null, 'killed before its end')
  }
  const atLast = await valuesUnder('old')
  t.ok(atLast > 0, `${atLast} of ${VALUES} values are left after ${KILLED_AT.length} kills`)
  const { child, answer } = startAgentctl({ url, args: ['keys', 'rotate', '--json'], env: both })
  await follow(database, load, child, Number.POSITIVE_INFINITY)
  const last = await answer
  const seconds = (performance.now() - startedAt) / 1_000
  const served = load.requests - servedBefore
  await load.stop()

  t.equal(last.status, 0, last.stderr)
  const rotation: Rotation = JSON.parse(last.stdout)
  t.equal((await rotated(database)).most, 1, 'no tool was encrypted twice')
  t.strictSame([rotation.skipped_tools, rotation.unopened_tools, rotation.deployment_key], [[], [], false])
  t.strictSame(load.failures, [])
  for (const [kind, count] of Object.entries(load.served)) t.ok(count > 0, `${count} requests with ${kind}`)
  t.comment(
    `${VALUES} values rotated in ${seconds.toFixed(1)} s with ${KILLED_AT.length} kills; ${served} requests meanwhile, ` +
      `${load.failures.length} failed, the longest took ${Math.round(load.longestMs)} ms`,
  )

  t.strictSame([await valuesUnder('old'), await valuesUnder('new')], [0, VALUES])
  t.equal(await service.stop(), 0)
  t.notOk(service.log.includes(SECRET_MARKER))

  const alone = { SECRET_KEYS: NEW_KEY }
  const renewed = await ServiceProcess.start({ DATABASE_URL: url, ...alone })
  t.teardown(() => renewed.stop('SIGKILL'))
  t.strictSame(await renewed.readiness(), { status: 200 })
  const masks = new SecretLoad({ port: renewed.port, token, tools, agents })
  await masks.sendMasksBack()
  t.strictSame([masks.failures, masks.served.masks], [[], TOOLS])
  t.equal((await agentctl({ url, args: ['keys', 'status'], env: alone })).status, 0)
  t.strictSame(
    await openedSecrets(database, parseKeyRing(NEW_KEY)),
    new Map(tools.map(tool => [tool.id, tool.secrets])),
  )
})

/** Leads the load to where a rotation is, until it has done so many tools or ends. */
async function follow(
  database: ServiceDatabase,
  load: SecretLoad,
  rotation: ChildProcess,
  tools: number,
): Promise<void> {
  for (;;) {
    const { count, last_id } = await rotated(database)
    load.rotatedId = last_id
    if (count >= tools || rotation.exitCode !== null) return
    await sleep(5)
  }
}

/** How many tools a rotation has done, the last of them, and how often the one that it did most often. */
async function rotated({ db }: ServiceDatabase): Promise<{ count: number; last_id: number; most: number }> {
  // Nothing else moves the number.
  const { rows } = await sql<{ count: number; last_id: number; most: number }>`
    select count(*)::integer as count, coalesce(max(id), 0) as last_id, coalesce(max(secrets_generation), 0) as most
    from tool where secrets_generation > 0`.execute(db)
  return only(rows)
}

/** Custom tools with ten secrets each under the old key, and agents that use some of them. */
async function seed(database: ServiceDatabase): Promise<{ tools: LoadedTool[]; agents: LoadedAgent[] }> {
  const vault = await openVault(database.db, parseKeyRing(OLD_KEY))
  const maskOfSecret = (id: number, { key, value }: Header) => ({
    key,
    value: maskOf(fingerprint(requireDeploymentKey(vault), id, key, value)),
  })
  const tools = range(TOOLS).map(number => {
    const id = FIRST_ID + number
    const secrets = range(HEADERS).map(header => ({ key: `X-${header}`, value: newSecret() }))
    return { id, secrets, masks: secrets.map(secret => maskOfSecret(id, secret)) }
  })
  const agents = range(AGENTS).map(number => ({ id: FIRST_ID + number, tools: TOOLS_OF_AGENT }))
  const document = {
    version: 1,
    tools: tools.map(({ id, secrets }) => ({
      id,
      name: `tool ${id}`,
      definition: definition('loaded'),
      custom_headers: secrets,
    })),
    agents: agents.map(({ id }, index) => ({
      id,
      name: `agent ${id}`,
      owner: 'alice@example.com',
      tools: tools.slice(index * TOOLS_OF_AGENT, (index + 1) * TOOLS_OF_AGENT).map(tool => tool.id),
    })),
  }
  await applyOrganisation(database, document, { vault, env: {} })
  return { tools, agents }
}

/** The headers of every tool of the load, opened with this ring. */
async function openedSecrets(database: ServiceDatabase, ring: KeyRing): Promise<Map<number, Header[]>> {
  const rows = await database.db.selectFrom('tool_header').selectAll().orderBy('tool_id').orderBy('position').execute()
  const opened = new Map<number, Header[]>()
  for (const { tool_id: toolId, name, key_id: keyId, nonce, ciphertext } of rows) {
    const value = decryptSecret(ring, { keyId, nonce, ciphertext }, { toolId, headerName: name })
    opened.set(toolId, [...(opened.get(toolId) ?? []), { key: name, value }])
  }
  return opened
}
