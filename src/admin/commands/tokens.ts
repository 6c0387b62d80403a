import type { Command } from 'commander'
import { PERMISSIONS } from '../../auth/caller.js'
import { resourceId } from '../resources.js'
import { createToken, type IssuedToken, listTokens, revokeToken, rotateToken } from '../tokens.js'
import { type Call, type CommandLine, collected, durationS, UsageError, wholeNumber } from './command.js'
import { permissionOf } from './people.js'

export function addTokenCommands(program: Command, line: CommandLine): void {
  const token = program.command('token').description('Access tokens.')
  const create = {
    effect: 'writes',
    summary: 'Makes an access token and shows it once.',
    example: 'agentctl token create --for ci@example.com --scope manage:actions --tool 7',
  } as const
  line
    .add(token, 'create', create, createCommand)
    .requiredOption('--for <EMAIL>', 'the user')
    .option('--scope <SCOPE>', `narrow it to ${PERMISSIONS.join(', ')}; may be repeated`, collected)
    .option('--agent <AGENT>', 'bind it to this agent, by id or name; may be repeated', collected)
    .option('--tool <TOOL>', 'bind it to this tool, by id or name; may be repeated', collected)
    .option('--expires <TIME>', 'how long it lives, such as 12h or 30d (default: 90d)')
    .option('--never', 'it never expires')
    .option('--require-if-match', 'refuse its updates without If-Match')
    .option('--json', 'print JSON')
  const list = {
    effect: 'reads',
    summary: 'Lists tokens, without their secrets.',
    example: 'agentctl token list --for ci@example.com',
  } as const
  line.add(token, 'list', list, listCommand).option('--for <EMAIL>', 'only of this user').option('--json', 'print JSON')
  const revoke = {
    effect: 'destroys',
    summary: 'Revokes a token: it stops working with the next request.',
    example: 'agentctl token revoke 12',
  } as const
  line
    .add(token, 'revoke <ID>', revoke, async call => {
      const id = wholeNumber(call.argument(0), 'ID')
      const revoked = await revokeToken((await call.database()).db, id, call.actor)
      call.answer({ id, revoked }, revoked ? `revoked token ${id}` : `token ${id} was revoked before`)
      return undefined
    })
    .option('--json', 'print JSON')
  const rotate = {
    effect: 'writes',
    summary: 'Makes a new token with the rights of an old one; both live for a while.',
    example: 'agentctl token rotate 12 --overlap 30m',
  } as const
  line
    .add(token, 'rotate <ID>', rotate, async call => {
      const overlap = call.text('overlap') ?? '24h'
      const overlapS = overlap === '0' ? 0 : durationS(overlap, '--overlap')
      const id = wholeNumber(call.argument(0), 'ID')
      show(call, await rotateToken((await call.database()).db, id, overlapS, call.actor))
      return undefined
    })
    .option('--overlap <TIME>', 'how long the old one lives on, such as 30m or 0 (default: 24h)')
    .option('--json', 'print JSON')
}

async function createCommand(call: Call): Promise<undefined> {
  const expires = call.text('expires')
  if (expires !== undefined && call.flag('never')) throw new UsageError('--expires and --never exclude each other')
  const expiresInS = call.flag('never') ? null : expires === undefined ? undefined : durationS(expires, '--expires')
  const { db } = await call.database()
  const request = {
    email: call.text('for') ?? '',
    scopes: call.texts('scope').map(permissionOf),
    personaIds: await Promise.all(call.texts('agent').map(agent => resourceId(db, 'persona', agent))),
    toolIds: await Promise.all(call.texts('tool').map(tool => resourceId(db, 'tool', tool))),
    requireIfMatch: call.flag('require-if-match'),
    ...(expiresInS !== undefined && { expiresInS }),
  }
  show(call, await createToken(db, request, call.actor))
}

async function listCommand(call: Call): Promise<undefined> {
  call.list(await listTokens((await call.database()).db, call.text('for')), {
    ID: token => token.id,
    USER: token => token.email,
    SCOPES: token => token.scopes,
    AGENTS: token => token.persona_ids,
    TOOLS: token => token.tool_ids,
    EXPIRES: token => (token.revoked_at ? `revoked ${token.revoked_at}` : (token.expires_at ?? 'never')),
    'LAST USED': token => token.last_used_at,
  })
}

function show(call: Call, issued: IssuedToken): void {
  call.answer(issued, () => {
    call.print(issued.token)
    call.remark(`token ${issued.id}, expires ${issued.expires_at ?? 'never'}; it is shown only now`)
  })
}
