import { readdirSync, readFileSync } from 'node:fs'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { type DemoApp, demoApp, serviceOn } from './demo-app.js'
import { matchesGolden } from './golden.js'

/*
 * Each file in `openapi/examples` contains a request, its caller, the examples to play first, and the service's answer. A new file needs only
 * `about` and `request`: `npm run golden` plays it last and adds the rest.
 */
const FOLDER = 'openapi/examples'
const UNREACHABLE = 'postgres://nobody@127.0.0.1:1/none'

interface Example {
  name: string
  about: string
  /** The examples to play before this one. Absent in a new example, which is played after all that change something. */
  after?: string[]
  /** One of `PLACES`. Default: the demo organisation. */
  on?: string
  /** One of `CALLERS`. Default: an administrator. */
  as?: string
  request: {
    method: 'GET' | 'PATCH' | 'PUT' | 'POST' | 'DELETE'
    path: string
    headers: Record<string, string>
    body?: unknown
  }
}

const EXAMPLES = readdirSync(FOLDER)
  .filter(file => file.endsWith('.json'))
  .map(file => {
    const example = JSON.parse(readFileSync(`${FOLDER}/${file}`, 'utf8')) as Omit<Example, 'name'> // a file of this repository
    return { ...example, name: file.replace(/\.json$/, '') }
  })

const CALLERS: Record<string, Exclude<keyof DemoApp['tokens'], 'admin'>> = {
  'a token of manager@example.com with the scope basic': 'reader',
  "an administrator's token that demands If-Match": 'careful',
  "an administrator's token that is bound to agent 2": 'bound',
  'a token of a runtime': 'runtime',
  'no token': 'nobody',
}

/** Services for examples that need other settings or records than the demo organisation. */
const PLACES: Record<string, (t: Test) => Promise<Pick<DemoApp, 'app' | 'tokens'>>> = {
  'agent 3 and tool 2 come with the product': async t => {
    const demo = await demoApp(t)
    await sql`update persona set builtin_persona = true where id = 3`.execute(demo.database.db)
    await sql`update tool set in_code_tool_id = 'SearchTool' where id = 2`.execute(demo.database.db)
    return demo
  },
  'RATE_LIMIT_PER_MINUTE=2, and two requests before': async t => {
    const demo = await demoApp(t, { RATE_LIMIT_PER_MINUTE: '2' })
    for (let n = 0; n < 2; n++) await demo.call('GET', '/persona/1', { token: demo.tokens.admin })
    return demo
  },
  'SNAPSHOT_BYTES_MAX=1048576, and tool 1 of agent 1 has a longer definition': async t => {
    const demo = await demoApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
    const put = EXAMPLES.find(({ name }) => name === 'update_custom_tool')?.request.body as { definition: object }
    const body = { definition: { ...put.definition, 'x-long': 'x'.repeat(2 ** 20) } }
    const headers = { prefer: 'return=minimal' }
    await demo.call('PUT', '/admin/tool/custom/1', { token: demo.tokens.admin, body, headers })
    return demo
  },
  'the database does not answer': async t => ({ ...(await demoApp(t)), ...(await serviceOn(t, UNREACHABLE)) }),
  'a function of the database was renamed': async t => {
    const demo = await demoApp(t)
    await sql`alter function persona_related rename to persona_related_is_gone`.execute(demo.database.db)
    return demo
  },
}

t.test('the examples of the OpenAPI folder are what the service answers', async t => {
  const here = await demoApp(t)
  const isBefore = (name: string) => EXAMPLES.some(({ after }) => after?.includes(name))
  const rank = ({ name, after }: Example) => (after?.length ?? EXAMPLES.length) + (isBefore(name) ? 0.5 : 0)
  const changed: string[] = []
  for (const example of EXAMPLES.filter(({ on }) => on === undefined).sort((one, other) => rank(one) - rank(other))) {
    if (await play(t, { ...example, after: [...changed] }, here)) changed.push(example.name)
  }
  for (const example of EXAMPLES) {
    if (example.on !== undefined) await play(t, example, (await PLACES[example.on]?.(t)) ?? here)
  }
})

/** Plays an example and compares the result with the example's file. Returns true if the example changed something. */
async function play(t: Test, example: Example, { app, tokens }: Pick<DemoApp, 'app' | 'tokens'>): Promise<boolean> {
  const { name, about, after, on, as, request } = example
  const { method, path, headers, body } = request
  const caller = as === undefined ? 'admin' : CALLERS[as]
  if (caller === undefined || (on !== undefined && PLACES[on] === undefined)) throw new Error(`${name}: ${as}, ${on}`)
  const token = tokens[caller]
  const authorization = (text: string) => (token === undefined ? {} : { authorization: `Bearer ${text}` })
  const payload = body === undefined ? {} : { payload: written(body) }
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  const sent = { ...type, ...headers, 'x-request-id': name }
  const answer = await app.inject({
    method,
    url: path,
    headers: { ...sent, ...authorization(token ?? '') },
    ...payload,
  })
  const shown = SHOWN_HEADERS.filter(header => answer.headers[header] !== undefined)
  const played = {
    ...{ about, after, on, as },
    request: { ...request, headers: { ...sent, ...authorization('<token>') } },
    answer: {
      status: answer.statusCode,
      headers: Object.fromEntries(shown.map(header => [header, answer.headers[header]])),
      body: answer.body === '' ? null : answer.json(),
    },
  }
  matchesGolden(t, `${FOLDER}/${name}.json`, `${steady(JSON.stringify(played, null, 2))}\n`)
  const { etag, 'dry-run': dryRun, 'idempotent-replayed': replayed } = answer.headers
  const isChange = etag !== undefined || method === 'DELETE'
  return method !== 'GET' && answer.statusCode < 300 && isChange && !dryRun && !replayed
}

/** Returns the body as JSON. Expands abbreviations such as `x (1000 times)`, which keep the files short. */
function written(body: unknown): string {
  return JSON.stringify(body).replaceAll(/"x \((\d+) times\)"/g, (_, times) => `"${'x'.repeat(Number(times))}"`)
}

const SHOWN_HEADERS = [
  ...['etag', 'location', 'link', 'warning', 'preference-applied', 'idempotent-replayed', 'dry-run'],
  ...['www-authenticate', 'retry-after', 'x-request-id'],
]

/** Replaces values that differ between runs, such as masks, tags and times, with fixed ones. */
function steady(text: string): string {
  return text
    .replaceAll(/\*{4}#[0-9a-f]{12}/g, '****#0123456789ab')
    .replaceAll(/((?:persona|tool|proposal)-\d+-\d+)\.[0-9a-f]{12}/g, '$1.0123456789ab')
    .replaceAll(/\\"[0-9a-f]{12}\\"/g, '\\"0123456789ab\\"')
    .replaceAll(
      /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+\.\d+/g,
      '01234567-89ab-4cde-8f01-23456789abcd.1000.100',
    )
    .replaceAll(/("expires_at": )"[^"]+"/g, '$1"2026-01-01T00:00:00Z"')
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z/g, '2026-01-01T00:00:00.000000Z')
    .replaceAll(/("request_id": "[\w-]+)\.[\w-]{16}"/g, '$1.0123456789abcdef"') // the random suffix of a client's request id
    .replaceAll(/("request_id": "cli-)[0-9a-f]{16}"/g, '$10123456789abcdef"')
    .replaceAll(/("retry-after": )"(?!1")\d+"/g, '$1"30"')
    .replaceAll(/(Try again in) (?!1 s)\d+ s/g, '$1 30 s')
}
