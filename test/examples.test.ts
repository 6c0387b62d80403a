import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { type DemoApp, demoApp, serviceOn } from './demo-app.js'
import { matchesGolden } from './golden.js'
import { DEFINITION, EXAMPLES, type Example, SHOWN_BODY_MAX_LENGTH } from './played-examples.js'

const UNREACHABLE = 'postgres://nobody@127.0.0.1:1/none'

t.test('the examples of the OpenAPI folder are what the service answers', async t => {
  const here = await demoApp(t)
  const before: string[] = []
  for (const example of EXAMPLES.filter(({ at = 'demo' }) => at === 'demo')) {
    if (await play(t, example, here, { after: [...before] })) before.push(example.file)
  }

  const limited = await demoApp(t, { RATE_LIMIT_PER_MINUTE: '2' })
  const { admin } = limited.tokens
  for (let n = 0; n < 2; n++)
    await limited.app.inject({ url: '/persona/1', headers: { authorization: `Bearer ${admin}` } })
  const unreachable = { ...here, ...(await serviceOn(t, UNREACHABLE)) }
  const broken = await demoApp(t)
  await sql`alter table persona rename column name to name_is_gone`.execute(broken.database.db)
  const small = await demoApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
  await small.app.inject({
    method: 'PUT',
    url: '/admin/tool/custom/1',
    headers: { authorization: `Bearer ${small.tokens.admin}`, 'content-type': 'application/json' },
    payload: JSON.stringify({ definition: { ...DEFINITION, 'x-long': 'x'.repeat(2 ** 20) } }),
  })
  const builtIn = await demoApp(t)
  await sql`update persona set builtin_persona = true where id = 3`.execute(builtIn.database.db)
  await sql`update tool set in_code_tool_id = 'SearchTool' where id = 2`.execute(builtIn.database.db)
  const places = { built_in: builtIn, limited, small, unreachable, broken }
  for (const example of EXAMPLES) {
    const { at } = example
    if (at !== undefined && at !== 'demo') await play(t, example, places[at], { after: [], on: PLACES[at] })
  }
})

/** What is special where examples are played that need more than the demo organisation. */
const PLACES = {
  built_in: 'agent 3 and tool 2 come with the product',
  limited: 'RATE_LIMIT_PER_MINUTE=2, and two requests before',
  small: 'SNAPSHOT_BYTES_MAX=1048576, and tool 1 of agent 1 has a longer definition',
  unreachable: 'the database does not answer',
  broken: 'a column of the database was renamed',
}

/** The tokens that are not an administrator's. */
const CALLERS: Record<string, string> = {
  reader: 'a token of manager@example.com with the scope basic',
  careful: "an administrator's token that demands If-Match",
  bound: "an administrator's token that is bound to agent 2",
  nobody: 'no token',
}

/** Plays an example and compares it with its file, which names the examples to send before it. Answers whether it changed something. */
async function play(
  t: Test,
  example: Example,
  { app, tokens }: Pick<DemoApp, 'app' | 'tokens'>,
  state: { after: string[]; on?: string },
): Promise<boolean> {
  const { file, about, method, path, headers = {}, body, as = 'admin' } = example
  const payload = body === undefined ? undefined : JSON.stringify(body)
  const type = payload === undefined ? {} : { 'content-type': 'application/json' }
  const sent = { ...type, 'x-request-id': file, ...headers }
  const token = tokens[as]
  const answer = await app.inject({
    method,
    url: path,
    headers: { ...sent, ...(token !== undefined && { authorization: `Bearer ${token}` }) },
    ...(payload !== undefined && { payload }),
  })
  const shown = SHOWN_HEADERS.filter(name => answer.headers[name] !== undefined)
  const authorization = token === undefined ? {} : { authorization: 'Bearer <token>' }
  const shownBody = payload !== undefined && payload.length <= SHOWN_BODY_MAX_LENGTH && { body }
  const played = {
    about,
    ...state,
    ...(as !== 'admin' && { as: CALLERS[as] }),
    request: { method, path, headers: { ...sent, ...authorization }, ...shownBody },
    answer: {
      status: answer.statusCode,
      headers: Object.fromEntries(shown.map(name => [name, answer.headers[name]])),
      body: answer.body === '' ? null : answer.json(),
    },
  }
  matchesGolden(t, `openapi/examples/${file}.json`, `${steady(JSON.stringify(played, null, 2))}\n`)
  const { etag } = answer.headers
  return (
    /^P/.test(method) &&
    answer.statusCode < 300 &&
    etag !== undefined &&
    !/dry_run/.test(path) &&
    !isReplay(answer.headers)
  )
}

const isReplay = (headers: Record<string, unknown>) => headers['idempotent-replayed'] !== undefined

const SHOWN_HEADERS = [
  'etag',
  'link',
  'warning',
  'preference-applied',
  'idempotent-replayed',
  'dry-run',
  'www-authenticate',
  'retry-after',
  'x-request-id',
]

/** Masks and tags of a read depend on the deployment's own key and times on the day: the files show the same of each. */
function steady(text: string): string {
  return text
    .replaceAll(/\*{4}#[0-9a-f]{12}/g, '****#0123456789ab')
    .replaceAll(/((?:persona|tool)-\d+-\d+)\.[0-9a-f]{12}/g, '$1.0123456789ab')
    .replaceAll(/\\"[0-9a-f]{12}\\"/g, '\\"0123456789ab\\"')
    .replaceAll(/("expires_at": )"[^"]+"/g, '$1"2026-01-01T00:00:00Z"')
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z/g, '2026-01-01T00:00:00.000000Z')
    .replaceAll(/("retry-after": )"(?!1")\d+"/g, '$1"30"')
    .replaceAll(/(Try again in) (?!1 s)\d+ s/g, '$1 30 s')
}
