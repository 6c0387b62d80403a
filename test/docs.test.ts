import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { close, docsSite, open, send, skip } from './docs-page.js'
import { storedAgent } from './update-persona/stored-agent.js'

t.test('/docs in a browser', { skip }, async t => {
  const site = await docsSite(t)
  const { app, database, origin, tokens } = site

  t.test('200: the prefilled requests of /docs succeed on the demo, with a token pasted in either form', async t => {
    const page = await site.page(t)
    await page.goTo(`${origin}/`) // leads to the page

    await page.type('#token', `Bearer ${tokens.admin}`)
    await page.click('#use:enabled')
    for (const operation of ['read_persona', 'read_tool', 'update_custom_tool', 'validate_tool', 'update_persona']) {
      await open(page, operation)
      t.match(await send(page, operation), /^200/, operation)
      if (operation !== 'update_persona') await close(page, operation)
    }
    t.equal((await storedAgent({ database }, 1)).name, 'Travel desk')

    await page.evaluate('location.reload()')
    await page.until(`document.readyState === 'complete' && /token is set/.test(document.body.innerText)`)
    await open(page, 'update_persona')
    t.match(await send(page, 'update_persona'), /^200/, 'the token outlives a reload')
    t.ok(
      await page.evaluate(`document.body.innerText.includes('${tokens.admin}')`),
      'a request stands there as it was sent',
    )

    await page.click('#forget')
    await page.until(`/No token yet/.test(document.getElementById('token-state').innerText)`)
    await page.until(`!document.body.innerText.includes('${tokens.admin}')`)
    t.match(await send(page, 'update_persona'), /^401/)

    await page.type('#token', tokens.admin)
    await page.click('#use:enabled')
    await page.click('#operations-public-update_persona .btn-clear')
    t.match(await send(page, 'update_persona'), /^200/)

    t.equal(await page.evaluate(`document.querySelector('#token').value`), '', 'the token is not left on the screen')
    const urls = [await page.evaluate<string>('location.href'), ...page.requests]
    t.notOk(urls.some(url => url.includes(tokens.admin)))
    const elsewhere = page.requests.filter(url => !url.startsWith(`${origin}/`) && !/^(data|blob):/.test(url))
    t.strictSame(elsewhere, [], 'the page asks nobody else')
  })

  t.test('200 or 204: every example that the page offers works with the parameters that come with it', async t => {
    const page = await site.page(t)
    const { paths } = (await (await fetch(`${origin}/openapi.json`)).json()) as { paths: object } // the document
    await page.goTo(`${origin}/docs`)
    await page.type('#token', tokens.admin)
    await page.click('#use:enabled')
    let count = 0
    for (const operation of Object.values(paths).flatMap(item => Object.values(item as object))) {
      const examples = Object.entries<{ 'x-parameters': Record<string, string> }>(
        operation.requestBody?.content['application/json'].examples ?? {},
      )
      const block = `#operations-public-${operation.operationId}`
      if (examples.length > 0) await open(page, operation.operationId)
      for (const [name, { 'x-parameters': own }] of examples) {
        if (examples.length > 1) await page.type(`${block} .opblock-section-request-body .examples-select select`, name)
        t.match(await send(page, operation.operationId), /^20[04]/, name)
        const { prefer: _, ...query } = own
        t.strictSame(Object.fromEntries(new URL(page.requests.at(-1) ?? '').searchParams), query, name)
        await page.click(`${block} .btn-clear`)
        await page.until(`document.querySelector('${block} .live-responses-table') === null`)
        count++
      }
      if (examples.length > 0) await close(page, operation.operationId)
    }
    t.ok(count > 6)
  })

  t.test('a refused paste says so and keeps nothing', async t => {
    const page = await site.page(t)
    await page.goTo(`${origin}/docs`)
    for (const pasted of ['two words', 'Bearer', 'Authorization: Bearer ']) {
      await page.type('#token', pasted)
      await page.click('#use:enabled')
      await page.until(`/not a token/.test(document.getElementById('token-state').innerText)`)
      t.equal(await page.evaluate('sessionStorage.length'), 0)
      await page.click('#forget')
      await page.until(`/No token yet/.test(document.getElementById('token-state').innerText)`)
    }
  })

  t.test('behind a path prefix requests stay below it', async t => {
    const page = await site.page(t)
    const outside: string[] = []
    const proxy = createServer((incoming, outgoing) => {
      const { url = '', method, headers } = incoming
      if (!url.startsWith('/agents/')) {
        outside.push(url)
        return void outgoing.writeHead(404).end()
      }
      const path = url.slice('/agents'.length)
      const passed = request(`${origin}${path}`, { method, headers }, answer => {
        outgoing.writeHead(answer.statusCode ?? 0, answer.headers)
        answer.pipe(outgoing)
      })
      incoming.pipe(passed)
    })
    await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
    t.teardown(() => proxy.close())
    const { port } = proxy.address() as AddressInfo // it listens on TCP
    await page.goTo(`http://127.0.0.1:${port}/agents/docs`)
    await page.type('#token', tokens.admin)
    await page.click('#use:enabled')
    for (const operation of ['read_persona', 'update_persona']) {
      await open(page, operation)
      t.match(await send(page, operation), /^200/, operation)
    }
    t.strictSame(outside, [])
  })

  t.test('an answer is shown with the numbers that it has, and on lines of its own', async t => {
    const page = await site.page(t)
    const schema = '{"type":"integer","enum":[12345678901234567,1.0,-0],"x-empty":[],"x-text":"a \\"b\\", {c}: [1e2]"}'
    const definition =
      '{"openapi":"3.0.0","info":{"title":"t","version":"1"},"servers":[{"url":"https://example.com"}],"paths":{"/a":{"get":{' +
      `"operationId":"getA","summary":"s","parameters":[{"name":"id","in":"query","schema":${schema}}]}}}}`
    const headers = { authorization: `Bearer ${tokens.admin}`, 'content-type': 'application/json' }
    const stored = await app.inject({
      method: 'PUT',
      url: '/admin/tool/custom/1',
      headers,
      payload: `{"definition":${definition}}`,
    })
    t.equal(stored.statusCode, 200, stored.body)
    await page.goTo(`${origin}/docs`)
    await page.type('#token', tokens.admin)
    await page.click('#use:enabled')
    await open(page, 'read_tool')
    t.match(await send(page, 'read_tool'), /^200/)
    const shown = await page.evaluate<string>(
      `document.querySelector('#operations-public-read_tool .live-responses-table pre').textContent`,
    )
    t.match(shown, /\n +"enum": \[\n +12345678901234567,\n +1\.0,\n +-0\n +\],\n/)
    t.ok(shown.includes('"x-empty": []') && shown.includes(String.raw`"a \"b\", {c}: [1e2]"`), shown)
    t.same(JSON.parse(shown), stored.json())
  })

  t.test('a browser that keeps no site data draws the page, and sends the token', async t => {
    const blocked = { profile: { default_content_setting_values: { cookies: 2 } } }
    const { tokens, origin, ...other } = await docsSite(t, blocked)
    const page = await other.page(t)
    await page.goTo(`${origin}/docs`)
    await page.type('#token', tokens.admin)
    await page.click('#use:enabled')
    await open(page, 'read_persona')
    t.equal(
      await page.evaluate(`(() => { try { return sessionStorage && 'kept' } catch { return 'blocked' } })()`),
      'blocked',
    )
    t.match(await send(page, 'read_persona'), /^200/)
  })
})
