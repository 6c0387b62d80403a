import { type Command, Option } from 'commander'
import { type Kysely, sql } from 'kysely'
import { PERMISSIONS } from '../../auth/caller.js'
import type { Permission, ResourceKind, Scope, Tables } from '../../db/tables.js'
import { Refusal } from '../refusal.js'
import { createToken, listTokens, revokeToken } from '../tokens.js'
import { type CommandLine, durationS, wholeNumber } from './command.js'

export function addTokenCommands(program: Command, line: CommandLine): void {
  const token = program.command('token').description('Access tokens.')
  line
    .add(token, 'create', '--for alice@example.com --scope manage:actions --tool 7', createCommand)
    .description('Creates an access token and shows it once.')
    .requiredOption('--for <EMAIL>', 'the user')
    .addOption(new Option('--scope <SCOPE...>', 'limit the token to this scope; repeatable').choices(PERMISSIONS))
    .option('--agent <ID...>', 'bind the token to this agent; repeatable', wholeNumbers)
    .option('--tool <ID...>', 'bind the token to this tool; repeatable', wholeNumbers)
    .option('--expires <TIME>', 'lifetime, such as 12h, 30d or never (default: 90d)', lifeS)
    .option('--read-only', 'allow reads, validations and dry runs, but no changes')
    .addOption(new Option('--runtime', 'like --read-only, but can read header values').conflicts('readOnly'))
    .addOption(new Option('--proposals-only', 'like --read-only, but can propose').conflicts(['readOnly', 'runtime']))
    .option('--require-if-match', 'refuse updates without the If-Match header')
  line
    .add(token, 'list', '--for runtime@example.com', listCommand)
    .description('Lists tokens, without their secrets.')
    .option('--for <EMAIL>', 'only tokens of this user')
  line
    .add(token, 'revoke', '12', revokeCommand)
    .argument('<ID>', '', wholeNumber)
    .description('Revokes a token with immediate effect.')
}

interface CreateOptions {
  for: string
  scope?: Permission[]
  agent?: number[]
  tool?: number[]
  expires?: number | 'never'
  readOnly?: boolean
  runtime?: boolean
  proposalsOnly?: boolean
  requireIfMatch?: boolean
}

async function createCommand(call: CommandLine, options: CreateOptions): Promise<undefined> {
  const { expires, readOnly, runtime, proposalsOnly, scope = [], agent = [], tool = [] } = options
  const db = await call.db()
  await requireExisting(db, 'persona', agent)
  await requireExisting(db, 'tool', tool)
  const restriction: Scope[] = [
    ...(readOnly ? ['read' as const] : []),
    ...(runtime ? ['runtime' as const] : []),
    ...(proposalsOnly ? ['propose' as const] : []),
  ]
  const request = {
    email: options.for,
    scopes: [...restriction, ...scope],
    personaIds: agent,
    toolIds: tool,
    requireIfMatch: options.requireIfMatch === true,
    ...(expires !== undefined && { expiresInS: expires === 'never' ? null : expires }),
  }
  const issued = await createToken(db, request, call.actor)
  call.answer(issued, () => {
    call.print(issued.token)
    call.remark(`token ${issued.id} (expires: ${issued.expires_at ?? 'never'}) is shown only once`)
  })
}

async function requireExisting(db: Kysely<Tables>, kind: ResourceKind, ids: readonly number[]): Promise<void> {
  const missing = sql<{ id: number }>`
    select w.id from unnest(${ids}::integer[]) w (id) left join ${sql.table(kind)} r on r.id = w.id where r.id is null`
  const [row] = (await missing.execute(db)).rows
  if (row !== undefined) throw new Refusal(`there is no ${kind === 'tool' ? 'tool' : 'agent'} ${row.id}: check the id`)
}

async function listCommand(call: CommandLine, options: { for?: string }): Promise<undefined> {
  call.list(await listTokens(await call.db(), options.for), {
    ID: token => token.id,
    USER: token => token.email,
    SCOPES: token => token.scopes,
    AGENTS: token => token.persona_ids,
    TOOLS: token => token.tool_ids,
    EXPIRES: token => (token.revoked_at ? `revoked ${token.revoked_at}` : (token.expires_at ?? 'never')),
    'LAST USED': token => token.last_used_at,
  })
}

async function revokeCommand(call: CommandLine, _: object, id: number): Promise<undefined> {
  const revoked = await revokeToken(await call.db(), id, call.actor)
  call.answer({ id, revoked }, revoked ? `revoked token ${id}` : `token ${id} was already revoked`)
}

function wholeNumbers(text: string, before: number[] = []): number[] {
  return [...before, wholeNumber(text)]
}

function lifeS(text: string): number | 'never' {
  return text === 'never' ? text : durationS(text)
}
