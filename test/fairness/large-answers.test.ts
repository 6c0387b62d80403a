import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { Callers } from './callers.js'
import { attach, fairnessWorld, owner } from './world.js'

const BYTES_MAX = 9 * 2 ** 20

t.test('one caller asks for agents with large tools', async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const { attacker, largeTools, mediumTools } = world

  t.test('422 for tools whose definitions make the answer too large; nothing is attached', async t => {
    const callers = new Callers(service.port)
    for (const [count, query] of [
      [110, '&dry_run=true'],
      [30, '&dry_run=true'],
      [3, ''],
    ] as const) {
      const answer = await callers.update(attacker, { tool_ids: largeTools.slice(0, count) }, query)
      t.equal(answer.status, 422, `${count} tools: ${answer.body.length} bytes`)
      t.match(JSON.parse(answer.body), { detail: [{ loc: ['body', 'tool_ids'], type: 'snapshot_too_large' }] })
    }
    const { rows } = await world.client.query('select from persona_tool where persona_id = $1', [attacker.agentId])
    t.equal(rows.length, 0)
    callers.close()
  })

  t.test('row 1: dry runs with 110 tools of 4.9 MB', async t => {
    await requireFairness(t, world, service, (over, callers) =>
      repeatedly(over, 4, 100, () => callers.update(attacker, { tool_ids: largeTools }, '&dry_run=true')),
    )
  })

  t.test('answers that nobody reads', async t => {
    const asker = await owner(world.client, 'alice+unread@example.com', mediumTools)
    const service = await fairService(t, world, { RATE_LIMIT_BYTES_PER_MINUTE: '0' })
    const head = [
      `PATCH /persona/${asker.agentId}?update_mask=&dry_run=true HTTP/1.1`,
      'Host: localhost',
      `Authorization: Bearer ${asker.token}`,
      'Content-Type: application/json',
      'Content-Length: 2',
    ]
    await requireFairness(t, world, service, async over => {
      const sockets: Socket[] = []
      while (!over.aborted && sockets.length < 200) {
        const socket = connect(service.port, '127.0.0.1').on('error', () => undefined)
        socket.write(`${head.join('\r\n')}\r\n\r\n{}`)
        sockets.push(socket.pause())
        await sleep(50)
      }
      while (!over.aborted) await sleep(20)
      for (const socket of sockets) socket.destroy()
    })
  })

  // What is answered is real work for the machine: the comparison needs one that does nothing else.
  if (FULL) {
    t.test('row 2: updates of an agent whose eight tools are as large as they may be', async t => {
      await attach(world, attacker, mediumTools)
      let n = 0
      await requireFairness(t, world, service, (over, callers) =>
        repeatedly(over, 2, 300, async () => {
          const { status, body } = await callers.update(attacker, { description: `${n++}` })
          if (status === 200) t.ok(body.length < BYTES_MAX)
        }),
      )
    })

    const text = await owner(world.client, 'alice+text@example.com', [])
    await world.client.query(
      `update persona set system_prompt = repeat(chr(1), 256000), task_prompt = repeat(chr(1), 256000) where id = $1`,
      [text.agentId],
    )
    const many = await owner(world.client, 'alice+many@example.com', [])
    await world.client.query(
      `insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, owner_id, is_public)
      select 'one of many', repeat(chr(1), 10000), 'auto', false, false, owner_id, false
      from persona cross join generate_series(1, 100) where id = $1`,
      [many.agentId],
    )
    const agent = `/persona/${attacker.agentId}`
    const asks: Record<string, (callers: Callers) => Promise<unknown>> = {
      'reads of that agent': callers => callers.send('GET', agent, attacker.token, ''),
      'dry runs of its update': callers => callers.update(attacker, { description: 'dry' }, '&dry_run=true'),
      'reads of a tool of 4.9 MB': callers => callers.send('GET', `/tool/${largeTools[0]}`, attacker.token, ''),
      'reads of an agent with long texts': callers => callers.send('GET', `/persona/${text.agentId}`, text.token, ''),
      'pages of 6 MB': callers => callers.send('GET', '/persona?limit=100', many.token, ''),
    }
    for (const [name, ask] of Object.entries(asks)) {
      t.test(`${name}, four at once`, async t => {
        await requireFairness(t, world, service, (over, callers) => repeatedly(over, 4, 50, () => ask(callers)))
      })
    }
  }

  t.test('row 2: 409 for an agent with eight tools of 4.9 MB, and the update that mends it is served', async t => {
    // With a minute of its own.
    const laden = await owner(world.client, 'alice+laden@example.com', largeTools.slice(0, 8))
    const callers = new Callers(service.port)
    const refused = await callers.update(laden, { description: 'too large' })
    t.equal(refused.status, 409)
    t.match(JSON.parse(refused.body), { error_code: 'SNAPSHOT_TOO_LARGE', request_id: /./ })
    let n = 0
    await requireFairness(t, world, service, (over, hostile) =>
      repeatedly(over, 4, 100, () => hostile.update(laden, { description: `${n++}` })),
    )
    const mended = await callers.update(laden, { tool_ids: largeTools.slice(0, 1) })
    t.equal(mended.status, 200)
    callers.close()
  })
})
