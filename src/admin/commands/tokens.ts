import { PERMISSIONS } from '../../auth/caller.js'
import { resourceId } from '../resources.js'
import { createToken, type IssuedToken, listTokens, revokeToken, rotateToken } from '../tokens.js'
import { type Call, type Command, durationS, JSON_OPTION, UsageError } from './command.js'
import { listCommand } from './list.js'
import { permissionOf } from './people.js'

export const tokenCommands: Command[] = [
  {
    name: 'token create',
    summary: 'Makes an access token and shows it once.',
    positionals: [],
    options: {
      for: { type: 'string', value: 'EMAIL', required: true, description: 'The user.' },
      scope: {
        type: 'string',
        multiple: true,
        value: 'SCOPE',
        choices: PERMISSIONS,
        description: 'Narrow the token; may be repeated.',
      },
      agent: {
        type: 'string',
        multiple: true,
        value: 'AGENT',
        alias: 'persona',
        description: 'Bind it to this agent, by id or name; may be repeated.',
      },
      tool: {
        type: 'string',
        multiple: true,
        value: 'TOOL',
        description: 'Bind it to this tool, by id or name; may be repeated.',
      },
      expires: { type: 'string', value: 'TIME', description: 'How long it lives: 90d, 12h, ... Default 90d.' },
      never: { type: 'boolean', description: 'It never expires.' },
      'require-if-match': { type: 'boolean', description: 'Refuse its updates without If-Match.' },
      ...JSON_OPTION,
    },
    run: createCommand,
  },
  listCommand({
    name: 'token list',
    summary: 'Lists tokens, without their secrets.',
    columns: [
      { field: 'id', title: 'ID', whole: true },
      { field: 'email', title: 'USER' },
      { field: 'scopes', title: 'SCOPES' },
      { field: 'persona_ids', title: 'AGENTS' },
      { field: 'tool_ids', title: 'TOOLS' },
      {
        field: 'expires_at',
        title: 'EXPIRES',
        show: token => (token.revoked_at ? `revoked ${token.revoked_at}` : (token.expires_at ?? 'never')),
      },
      { field: 'last_used_at', title: 'LAST USED' },
      { field: 'requires_if_match' },
      { field: 'created_at' },
      { field: 'revoked_at' },
      { field: 'digest' },
    ],
    options: { for: { type: 'string', value: 'EMAIL', description: 'Only of this user.' } },
    rows: async (call, selection) => await listTokens((await call.database()).db, call.text('for'), selection),
  }),
  {
    name: 'token revoke',
    summary: 'Revokes a token: it stops working with the next request.',
    positionals: ['ID'],
    options: JSON_OPTION,
    run: async call => {
      const id = call.id(0)
      const revoked = await revokeToken((await call.database()).db, id, call.actor)
      call.answer({ id, revoked }, revoked ? `revoked token ${id}` : `token ${id} was revoked before`)
    },
  },
  {
    name: 'token rotate',
    summary: 'Makes a new token with the rights of an old one; both live for a while.',
    positionals: ['ID'],
    options: {
      overlap: {
        type: 'string',
        value: 'TIME',
        description: 'How long the old one lives on: 24h, 30m, ... Default 24h.',
      },
      ...JSON_OPTION,
    },
    run: async call => {
      const overlap = call.text('overlap') ?? '24h'
      const overlapS = overlap === '0' ? 0 : durationS(overlap, '--overlap')
      show(call, await rotateToken((await call.database()).db, call.id(0), overlapS, call.actor))
    },
  },
]

async function createCommand(call: Call): Promise<undefined> {
  const email = call.text('for') ?? ''
  const expires = call.text('expires')
  if (expires !== undefined && call.flag('never')) throw new UsageError('--expires and --never exclude each other')
  const expiresInS = call.flag('never') ? null : expires === undefined ? undefined : durationS(expires, '--expires')
  const { db } = await call.database()
  const request = {
    email,
    scopes: call.texts('scope').map(permissionOf),
    personaIds: await Promise.all(call.texts('agent').map(agent => resourceId(db, 'persona', agent))),
    toolIds: await Promise.all(call.texts('tool').map(tool => resourceId(db, 'tool', tool))),
    requireIfMatch: call.flag('require-if-match'),
    ...(expiresInS !== undefined && { expiresInS }),
  }
  show(call, await createToken(db, request, call.actor))
}

function show(call: Call, issued: IssuedToken): void {
  call.answer(issued, () => {
    call.print(issued.token)
    call.remark(`token ${issued.id}, expires ${issued.expires_at ?? 'never'}; it is shown only now`)
  })
}
