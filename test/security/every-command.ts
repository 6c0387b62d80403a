import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateKey } from '../../src/secrets/key-ring.js'
import { type Answer, agentctl, type CommandLine } from '../cli/agentctl.js'
import { DEFINITION } from '../matrix-organisation.js'
import { TEST_SECRET_KEYS } from '../world.js'

/** A command line with its expected exit status. Default: 0. */
interface Line extends Omit<CommandLine, 'url'> {
  status?: number
}

/** A command that was run, with its output and expected exit status. */
export interface Ran extends Answer {
  args: readonly string[]
  expected: number
}

/**
 * Runs every command of `agentctl` on the recorded organisation. Commands that take secrets get secrets from `plant`, in valid and invalid arguments.
 * Tool 10 must have at least two versions.
 */
export async function runEveryCommand(url: string, plant: () => string): Promise<Ran[]> {
  const folder = mkdtempSync(join(tmpdir(), 'every-command-'))
  let files = 0
  const file = (content: unknown) => {
    const path = join(folder, String(++files))
    writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
    return path
  }
  const ran: Ran[] = []
  try {
    const lines = [documents(file, plant), brokenDocuments(file, plant), others(file), keys()]
    for (const { status: expected = 0, ...line } of lines.flat())
      ran.push({ ...(await agentctl({ url, ...line })), args: line.args, expected })
    return ran
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** A function that writes a file and returns the file's path. */
type File = (content: unknown) => string

function documents(file: File, plant: () => string): Line[] {
  const document = (headers: unknown, rest: object = {}) =>
    file({ version: 1, tools: [{ id: 10, name: 'items', custom_headers: headers, ...rest }] })
  const one = () => ({ key: 'X-Applied', value: plant() })
  const given = document([one(), { key: 'X-Other', value: plant() }])
  const created = document([one()], { id: 990, name: 'Planted', definition: DEFINITION })
  const filledIn = document([{ key: 'X-Applied', value: `Bearer \${env:AGENTS_PLANTED}` }])
  const faulty = [
    document([one(), one()]),
    document([{ key: 'X-A', value: `${plant()}\r\nX-B: ${plant()}` }]),
    document([{ key: 'X-A', value: plant() + 'x'.repeat(9_000) }]),
    document([{ key: 'X-A', value: [plant()] }, plant(), { ...one(), extra: plant() }]),
    document(plant()),
    document([{ key: 'X-A', value: `${plant()}\${env:NOT_SET}` }]),
    document([{ key: 'Authorization', value: plant() }], { passthrough_auth: true }),
  ]
  return [
    { args: ['apply', given, '--plan'], status: 2 },
    { args: ['apply', given, '--plan', '--json'], status: 2 },
    { args: ['apply', given, '--plan', '--prune', '--json'], status: 2 },
    { args: ['apply', given] },
    { args: ['apply', created] },
    { args: ['apply', given, '--prune'], status: 64 },
    { args: ['apply', filledIn, '--json'], env: { AGENTS_PLANTED: plant() } },
    { args: ['apply', filledIn], env: { AGENTS_PLANTED: `${plant()}\n` }, status: 1 },
    ...faulty.map((path, i) => ({ args: ['apply', path, ...(i % 2 === 0 ? ['--json'] : [])], status: 1 })),
    { args: ['apply', given], env: { SECRET_KEYS: generateKey('another') }, status: 1 },
  ]
}

/** Commands with invalid documents that contain the secret at the place that a parser would quote. */
function brokenDocuments(file: File, plant: () => string): Line[] {
  const bare = () => plant().replace(/[^A-Za-z0-9_-]/g, '')
  const values = [
    ...[`*${bare()}`, `|${bare()}`, `!${bare()}`, `!x!${bare()}`, `!<${bare()}`, `!${bare()}!`, `"${bare()}`],
    ...[`"${bare()}" ${bare()}`, `"\\U${bare()}"`, `%${bare()}: ${bare()}`, `@${bare()}`, `&${bare()} *${bare()}`],
    `{${bare()}: ]${bare()}`,
  ]
  const flow = (value: string) => `version: 1\ntools: [{name: items, custom_headers: [{key: X-A, value: ${value}}]}]\n`
  const block = (value: string) =>
    `version: 1\ntools:\n - name: items\n   custom_headers:\n    - key: X-A\n      value: ${value}\n`
  const json = `{"version":1,"tools":[{"name":"items","custom_headers":[{"key":"X-A","value":"${bare()}"${bare()}}]}]}`
  const directive = `%${bare()} ${bare()}\n---\nversion: 1\n`
  const texts = [...values.map((value, i) => (i % 2 === 0 ? flow(value) : block(value))), json, directive]
  return [
    ...texts.map(text => ({ args: ['apply', file(text)], status: 1 })),
    // With `input`, the command runs in its own process, so that the output of Node itself is captured.
    { args: ['apply', '-'], input: block(`{{${bare()}}}`), status: 1 },
  ]
}

/** Parses command lines with their expected exit statuses. */
function written(lines: Record<string, number>): Line[] {
  return Object.entries(lines).map(([line, status]) => ({ args: line.split(' '), status }))
}

/** Commands that take no secrets. They must not print any either. */
function others(file: File): Line[] {
  const definition = file(DEFINITION)
  return written({
    [`validate ${definition}`]: 0,
    [`validate ${definition} --complete`]: 0,
    [`validate ${definition} --json`]: 0,
    'audit list --limit 1000': 0,
    'audit list --limit 1000 --json': 0,
    'audit verify': 0,
    'audit verify --json': 0,
    'changes reset': 0,
    'user erase nobody@example.com --plan': 1,
    export: 0,
    'export --json': 0,
    status: 0,
    'status --json': 0,
    'init dora@example.com': 1,
    'migrate --plan': 0,
    migrate: 0,
    'user create dora@example.com': 0,
    'user list --json': 0,
    'token create --for dora@example.com': 0,
    'token revoke 1': 0,
    'token list --json': 0,
    'agent owner 8 --to dora@example.com': 0,
    'user deactivate dora@example.com': 0,
  })
}

/** Commands for keys, with several key rings. The ring `lacking` lacks the key that encrypts the stored secrets. */
function keys(): Line[] {
  const fresh = `${generateKey('fresh')} ${TEST_SECRET_KEYS}`
  const lacking = { SECRET_KEYS: generateKey('another') }
  return [
    { args: ['keys', 'generate'] },
    { args: ['keys', 'status'] },
    { args: ['keys', 'status', '--json'], env: lacking, status: 3 },
    { args: ['keys', 'rotate'], env: lacking, status: 3 },
    { args: ['keys', 'rotate'], env: { SECRET_KEYS: fresh } },
    { args: ['keys', 'status'], env: { SECRET_KEYS: fresh } },
    { args: ['keys', 'status'], env: lacking, status: 3 },
  ]
}
