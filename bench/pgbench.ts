import { spawnSync } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import { openUrl } from '../src/db/open.js'
import { TextArray } from '../src/db/statements/text-array.js'
import { Lifecycle } from '../src/lifecycle.js'
import { configuredKeyRing } from '../src/secrets/configured-ring.js'
import { VERSION } from '../src/version.js'

/** The row statements that `work` makes the service send, with their values; the service runs in this process. */
export async function recorded(env: NodeJS.ProcessEnv, work: (port: number) => Promise<void>): Promise<Sent[]> {
  const config = readConfig({ ...env, LOG_LEVEL: 'silent' })
  const logger = pino({ level: 'silent' })
  const database = openUrl(env.DATABASE_URL ?? '', config, {})
  const ring = await configuredKeyRing(config)
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates: false, log: logger })
  await service.start()
  const sent: Sent[] = []
  const batched = database.batched.bind(database)
  database.batched = (statement, row, ...others) => {
    sent.push(statement.bind([row]))
    return batched(statement, row, ...others)
  }
  const app = await buildApp({ config, version: VERSION, database, service, logger })
  await app.listen({ host: '127.0.0.1', port: 0 })
  await work((app.addresses()[0] as AddressInfo).port)
  await app.close()
  await database.close()
  return sent
}

interface Sent {
  readonly sql: string
  readonly parameters: readonly unknown[]
}

/**
 * Updates a second that pgbench makes with the statements of one update of agent `id` from `version`. Each client has 16 agents of
 * its own; all agents must have that version. Undefined where there is no pgbench.
 */
export function pgbench(
  url: string,
  sent: readonly Sent[],
  { id, version }: { id: number; version: number },
  { clients, seconds }: { clients: number; seconds: number },
): number | undefined {
  const names = [':id', ':version', ':next']
  const variables = new Map([id, version, version + 1].map((value, i) => [String(value), names[i]]))
  const escaped = (text: string) => text.replaceAll(':', '\\x3a') // pgbench takes a colon for a variable
  const literal = (value: unknown): string => {
    if (value === null || value === undefined) return 'null'
    if (value instanceof TextArray) return `array[${value.values.map(each => `${literal(each)}::text`).join(', ')}]`
    const text = Buffer.isBuffer(value) ? `\\x${value.toString('hex')}` : String(value)
    return variables.get(text) ?? `E'${escaped(text.replaceAll('\\', '\\\\').replaceAll("'", "''"))}'`
  }
  const statements = sent.map(({ sql, parameters }) => {
    const text = sql.replaceAll(/'[^']*'/g, part => (part.includes(':') ? `E${escaped(part)}` : part))
    return `${text.replaceAll(/\$(\d+)/g, (_, position) => literal(parameters[Number(position) - 1])).trim()};`
  })
  const variablesOf = [
    'id 1 + :client_id * 16 + :n % 16',
    `version ${version} + :n / 16`,
    'next :version + 1',
    'n :n + 1',
  ]
  const file = join(mkdtempSync(join(tmpdir(), 'bench-')), 'script.sql')
  writeFileSync(file, `${[...variablesOf.map(each => `\\set ${each}`), ...statements].join('\n')}\n`)
  const options = ['-n', '-M', 'prepared', '-D', 'n=0', '-c', String(clients), '-j', '2', '-T', String(seconds)]
  const env = { ...process.env, PGOPTIONS: '-c plan_cache_mode=force_generic_plan' }
  const { stdout, stderr, status, error } = spawnSync('pgbench', [...options, '-f', file, url], {
    env,
    encoding: 'utf8',
  })
  if (error !== undefined) return undefined
  const perSecond = Number(/tps = ([\d.]+)/.exec(stdout)?.[1])
  if (status !== 0 || Number.isNaN(perSecond)) throw new Error(`pgbench failed: ${stderr.slice(0, 2000)}`)
  return perSecond
}
