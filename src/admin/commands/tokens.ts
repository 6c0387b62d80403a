import { createToken, type IssuedToken, listTokens, revokeToken, rotateToken } from '../tokens.js'
import { type Call, type Command, durationS, JSON_OPTION, table, UsageError, wholeNumber } from './command.js'
import { permissionOf } from './people.js'

export const tokenCommands: Command[] = [
  {
    name: 'token create',
    summary: 'Makes an access token and shows it once.',
    positionals: [],
    options: {
      for: { type: 'string', value: 'EMAIL', description: 'The user. Required.' },
      scope: {
        type: 'string',
        multiple: true,
        value: 'SCOPE',
        description: 'Narrow the token: basic, manage:actions or admin; may be repeated.',
      },
      persona: { type: 'string', multiple: true, value: 'ID', description: 'Bind it to this agent; may be repeated.' },
      tool: { type: 'string', multiple: true, value: 'ID', description: 'Bind it to this tool; may be repeated.' },
      expires: { type: 'string', value: 'TIME', description: 'How long it lives: 90d, 12h, ... Default 90d.' },
      never: { type: 'boolean', description: 'It never expires.' },
      'require-if-match': { type: 'boolean', description: 'Refuse its updates without If-Match.' },
      ...JSON_OPTION,
    },
    run: createCommand,
  },
  {
    name: 'token list',
    summary: 'Lists tokens, without their secrets.',
    positionals: [],
    options: { for: { type: 'string', value: 'EMAIL', description: 'Only of this user.' }, ...JSON_OPTION },
    run: async call => {
      const tokens = await listTokens((await call.database()).db, call.text('for'))
      if (call.json) {
        call.printJson(tokens)
        return undefined
      }
      const rows = tokens.map(token => [
        token.id,
        token.email,
        token.scopes?.join(','),
        token.persona_ids?.join(','),
        token.tool_ids?.join(','),
        token.revoked_at ? `revoked ${token.revoked_at}` : (token.expires_at ?? 'never'),
        token.last_used_at,
      ])
      call.print(table([['ID', 'USER', 'SCOPES', 'AGENTS', 'TOOLS', 'EXPIRES', 'LAST USED'], ...rows]))
      return undefined
    },
  },
  {
    name: 'token revoke',
    summary: 'Revokes a token: it stops working with the next request.',
    positionals: ['ID'],
    options: {},
    run: async call => {
      const id = call.id(0)
      const revoked = await revokeToken((await call.database()).db, id)
      call.print(revoked ? `revoked token ${id}` : `token ${id} was revoked before`)
      return undefined
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
      show(call, await rotateToken((await call.database()).db, call.id(0), overlapS))
      return undefined
    },
  },
]

async function createCommand(call: Call): Promise<undefined> {
  const email = call.text('for')
  const expires = call.text('expires')
  if (email === undefined) throw new UsageError('--for EMAIL is missing')
  if (expires !== undefined && call.flag('never')) throw new UsageError('--expires and --never exclude each other')
  const request = {
    email,
    scopes: call.texts('scope').map(permissionOf),
    personaIds: call.texts('persona').map(text => wholeNumber(text, '--persona')),
    toolIds: call.texts('tool').map(text => wholeNumber(text, '--tool')),
    requireIfMatch: call.flag('require-if-match'),
    ...(call.flag('never') && { expiresInS: null }),
    ...(expires !== undefined && { expiresInS: durationS(expires, '--expires') }),
  }
  show(call, await createToken((await call.database()).db, request))
  return undefined
}

function show(call: Call, issued: IssuedToken): void {
  if (call.json) {
    call.printJson(issued)
    return
  }
  call.print(issued.token)
  call.output.remark(`token ${issued.id}, expires ${issued.expires_at ?? 'never'}; it is shown only now`)
}
