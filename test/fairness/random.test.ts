import { connect } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { brokenHttp, type HostileRequest, hostileRequests } from '../security/requests.js'
import { FULL, fairService, peakResidentBytes, RESIDENT_BYTES_MAX, requireAllServed, watchReadiness } from './beside.js'
import { percentile, type Served } from './callers.js'
import { QuietCallers } from './quiet.js'
import { fairnessWorld, type Owner, owner } from './world.js'

/*
 * 20,000 random requests in full, of 50 tokens at once; `FUZZ_SEED` repeats a series.
 */
const REQUESTS = FULL ? 20_000 : 500
const TOKENS = 50
const SEED = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31)
const ANSWER_LIMIT_MS = 60_000

/** Bytes to send, and after how many of them the client hangs up, if it does. */
interface Sending {
  bytes: Buffer
  hangsUpAfter: number | undefined
}

t.test(`${REQUESTS} hostile requests of ${TOKENS} tokens beside ten quiet callers, seed ${SEED}`, async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const hostile: Owner[] = []
  for (let i = 0; i < TOKENS; i++) hostile.push(await owner(world.client, `alice+hostile${i}@example.com`, []))
  await world.client.query(
    `update user_account set permissions = '{basic,manage:actions}' where email ~ 'hostile[0-9]*[02468]@'`,
  )
  const series = hostile.map((one, i) =>
    fc.sample(sendings(one, world.largeTools), { numRuns: REQUESTS / TOKENS, seed: SEED + i }),
  )
  const quiet = new QuietCallers({ port: service.port, from: '127.0.0.1', owners: world.victims })
  const readiness = watchReadiness(service)
  const statuses = new Map<string, number>()
  let left = hostile.length
  const attacking = series.map(async sendings => {
    for (const sending of sendings) {
      const status = await sent(service.port, sending)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
    left -= 1
  })
  const slots: Served[] = []
  while (left > 0) slots.push(await quiet.serve(2_000))
  await Promise.all(attacking)

  requireAllServed(t, slots)
  const latenciesMs = slots.flatMap(slot => slot.latenciesMs)
  const { rows } = await world.client.query<{ stored: number }>(
    'select sum(version - 1)::integer as stored from persona where id = any($1)',
    [world.victims.map(({ agentId }) => agentId)],
  )
  t.equal(rows[0]?.stored, latenciesMs.length, 'each acknowledged update is stored once')
  t.strictSame(await readiness.end(), [], 'ready throughout')
  t.equal(statuses.get('500') ?? 0, 0)
  t.notMatch(service.log, /INTERNAL_ERROR|"level":60/)
  const peak = peakResidentBytes(service.pid)
  t.ok(peak < RESIDENT_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
  const seen = JSON.stringify(Object.fromEntries([...statuses].sort()))
  const p99 = Math.round(percentile(latenciesMs, 0.99))
  t.comment(`${latenciesMs.length} quiet updates, p99 ${p99} ms; the hostile were answered ${seen}`)
  await quiet.close()
})

/** What one hostile caller sends. */
function sendings({ token, agentId }: Owner, largeTools: readonly number[]): fc.Arbitrary<Sending> {
  const authorization = `Bearer ${token}`
  const own = (fields: object, query = '') => ({
    method: 'PATCH',
    url: `/persona/${agentId}?update_mask=${Object.keys(fields).join(',')}${query}`,
    headers: { authorization, 'content-type': 'application/json' },
    payload: Buffer.from(JSON.stringify(fields)),
  })
  const validation = (text: string): HostileRequest => ({
    method: 'POST',
    url: '/admin/tool/custom/validate?complete=true',
    headers: { authorization, 'content-type': 'application/json' },
    payload: Buffer.from(text),
  })
  const requests = fc.oneof(
    { weight: 40, arbitrary: hostileRequests([authorization, 'Bearer pat_0', undefined]) },
    { weight: 15, arbitrary: fc.string({ maxLength: 500 }).map(description => own({ description })) },
    {
      weight: 10,
      arbitrary: fc.subarray([...largeTools], { minLength: 1 }).map(tools => own({ tool_ids: tools }, '&dry_run=true')),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(fc.constantFrom(...LARGE_PARTS), fc.nat({ max: 400_000 }))
        .map(([part, count]) => validation(`{"definition":{"openapi":"3.1.0","x":[${part.repeat(count)}0]}}`)),
    },
  )
  const hangUp = fc.oneof(
    { weight: 9, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
  )
  const wellMade = fc.tuple(requests, hangUp).map(([request, share]) => {
    const bytes = written(request)
    return { bytes, hangsUpAfter: share === undefined ? undefined : Math.floor(share * bytes.length) }
  })
  const broken = brokenHttp.map(bytes => ({ bytes, hangsUpAfter: bytes.length }))
  return fc.oneof({ weight: 20, arbitrary: wellMade }, { weight: 1, arbitrary: broken })
}

const LARGE_PARTS = ['{},', '[],', '"x",', '1,', '{"a":{}},', '{"$ref":"#/x"},']

/** A request as bytes, whatever its texts are: a client library would refuse some. */
function written({ method, url, headers, payload }: HostileRequest): Buffer {
  const lines = Object.entries({ host: 'localhost', connection: 'close', ...headers })
  const length = payload === undefined ? [] : [`content-length: ${payload.length}`]
  const head = [`${method} ${url} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`), ...length, '', '']
  return Buffer.concat([Buffer.from(head.join('\r\n'), 'latin1'), payload ?? Buffer.alloc(0)])
}

/** Sends bytes over a connection of their own; answers the status, or what became of the connection. */
function sent(port: number, { bytes, hangsUpAfter }: Sending): Promise<string> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    let head = ''
    socket.setTimeout(ANSWER_LIMIT_MS, () => socket.destroy(new Error('no answer')))
    socket.on('data', chunk => {
      if (head.length < 20) head += chunk.toString('latin1', 0, 20)
    })
    socket.on('end', () => socket.end())
    socket.on('error', () => undefined) // a cut connection is a fine answer
    socket.on('close', () => resolve(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1] ?? 'none'))
    if (hangsUpAfter === undefined) socket.write(bytes)
    else socket.write(bytes.subarray(0, hangsUpAfter), () => socket.destroy())
  })
}
