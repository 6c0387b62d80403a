import type { AddressInfo } from 'node:net'
import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from './app.js'
import { CHROMIUM, Page } from './browser.js'
import { storedAgent } from './persona/stored-agent.js'

const skip = CHROMIUM === undefined ? 'no chromium on this machine: apt-get install chromium' : false

t.test('200: /docs works without a network: authorise, send an agent update, read the answer', { skip }, async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  await world.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = world.app.server.address() as AddressInfo // it listens on TCP
  const page = await Page.open(CHROMIUM ?? '')
  t.teardown(() => page.close())
  const operation = '#operations-public-update_persona'

  await page.goTo(`http://127.0.0.1:${port}/docs`)
  await page.click('.scheme-container .btn.authorize')
  await page.type('.auth-container input', token)
  await page.click('.auth-btn-wrapper .btn.authorize')
  await page.click('.auth-btn-wrapper .btn-done')
  await page.click(`${operation} .opblock-summary-control`)
  await page.type(`${operation} tr[data-param-name="persona_id"] input`, '11')
  await page.type(
    `${operation} textarea.body-param__text`,
    JSON.stringify({ ...REQUIRED_FIELDS, name: 'From the page' }),
  )
  await page.click(`${operation} .btn.execute`)
  const shown = await page.until<{ status: string; body: string }>(`(() => {
    const response = document.querySelector('${operation} .live-responses-table .response')
    return {
      status: response.querySelector('.response-col_status').innerText.trim(),
      body: response.querySelector('.highlight-code').innerText
    }
  })()`)

  t.match(shown.status, /^200/)
  t.match(shown.body, /"name": "From the page"/)
  t.equal((await storedAgent(world, 11)).name, 'From the page')
  const elsewhere = page.requests.filter(
    url => !url.startsWith(`http://127.0.0.1:${port}/`) && !/^(data|blob):/.test(url),
  )
  t.strictSame(elsewhere, [], 'the page asks nobody else')
  t.ok(page.requests.some(url => url.endsWith('/persona/11')))
})
