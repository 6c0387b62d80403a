import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { sql } from 'kysely'
import { type Browser, chromium, type Page, type Request } from 'playwright-core'
import t, { type Test } from 'tap'
import { demoApp } from '../demo-app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { listening } from '../test-service.js'

const CHROMIUM = process.env['CHROMIUM'] ?? '/usr/bin/chromium'
const skip = existsSync(CHROMIUM) ? false : `no ${CHROMIUM} on this machine: apt-get install chromium, or set CHROMIUM`
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const SCRIPT = '<img src=x onerror="document.title=\'run\'"><script>document.title="run"</script>\u202e\u{e0041}'

const BROKEN = JSON.stringify({
  openapi: '3.0.3',
  info: { title: 'Orders' },
  servers: [{ url: 'https://orders.example.com' }],
  paths: { '/orders/{id}': { get: { summary: 'Read an order' } } },
})

t.test('people look at everything, check a definition and take a change back', { skip }, async t => {
  const { app, call, database, tokens } = await demoApp(t, { STATEMENT_TIMEOUT_MS: '1000', LOCK_TIMEOUT_MS: '500' })
  const origin = `http://127.0.0.1:${await listening(app)}`
  const args = ['--headless', '--no-sandbox', '--disable-gpu']
  const browser = await chromium.launch({ executablePath: CHROMIUM, args })
  t.teardown(() => browser.close())
  const edit = (fields: object, mask = Object.keys(fields).join()) =>
    call('PATCH', `/persona/1?update_mask=${mask}`, { token: tokens.admin, body: fields })
  await edit({ name: `Planner ${SCRIPT}`, system_prompt: 'Plan trips to five islands.' })

  for (const width of [1400, 390]) {
    await t.test(`at ${width} pixels`, async t => {
      const { page, isClean, isSilent } = await opened(t, browser, origin, width)
      await page.keyboard.type(tokens.admin) // the field has the focus
      await isClean('sign-in')
      await page.keyboard.press('Enter')
      await page.getByRole('link', { name: 'Chapter editor' }).waitFor()
      await isClean('agents')
      await page.getByLabel('Search').fill('PLANNER alice')
      await page.locator('#found', { hasText: /^1 of \d+ agents$/ }).waitFor()
      t.match(await page.locator('#rows').textContent(), '<img src=x', 'a text of a user is a text')
      await page.getByRole('link', { name: 'Tools' }).click()
      await page.getByRole('link', { name: 'weather' }).click()
      await page.getByText(/^\d+ characters$/).waitFor()
      await isClean('a tool')
      await page.getByRole('button', { name: 'Check and edit a copy' }).click()
      await page.locator('#use', { hasText: /^\d+ agents? with the tool/ }).waitFor()
      t.match(await page.locator('#changes').textContent(), 'A model would notice nothing.')
      t.match(await page.locator('#size').textContent(), /^\d+ functions?\.$/)
      await isClean('a definition without faults')

      await page.getByLabel('Compare with tool').fill('')
      await page.getByLabel('OpenAPI definition').fill(BROKEN)
      const fault = page.locator('#notes .fault', { hasText: 'needs an operationId' })
      await fault.waitFor()
      t.match(await fault.textContent(), /^fault .*paths\.\/orders\/\{id\}\.get/)
      await page.getByLabel('OpenAPI definition').focus()
      await page.keyboard.press('Tab')
      t.not(await page.evaluate('document.activeElement.id'), 'box', 'the keyboard leaves the box')
      await isClean('a definition with faults')
      await page.getByRole('button', { name: 'Repair', exact: true }).click()
      await page.locator('#edits ins', { hasText: 'orders_id_get' }).waitFor()
      await isClean('a repair')
      await page.getByRole('button', { name: 'Put the repaired' }).click()
      await page.locator('#functions', { hasText: 'orders_id_get' }).waitFor()
      t.match(await page.getByLabel('OpenAPI definition').inputValue(), '"operationId": "orders_id_get"')
      await page.keyboard.press('Control+z')
      await fault.waitFor()

      const [before] = (await call('GET', '/persona/1/history', { token: tokens.admin })).json()
      await page.goto(`${origin}/console#/agents/1`)
      await edit({ system_prompt: `Plan trips to seven islands, ${width}.` })
      await page.getByLabel('Views').getByText('Agents').click()
      await page.getByRole('link', { name: 'Planner' }).click()
      const entry = page.locator('#entries > li').first()
      await entry.locator('ins', { hasText: 'seven' }).waitFor()
      await isClean('an agent and its history')
      await entry.getByRole('link', { name: /^Compare with \d+$/ }).click()
      const sides = page.locator('#differences .two pre')
      await sides.first().locator('del', { hasText: /five/ }).waitFor()
      t.match(await sides.last().locator('ins').first().textContent(), /seven/)
      t.match(await sides.last().textContent(), 'Plan trips to seven islands', 'what is the same is there too')
      await isClean('two versions')
      await page.goBack()
      await page.getByRole('link', { name: `Restore ${before.version}`, exact: true }).click()
      const restore = page.getByRole('button', { name: `Restore version ${before.version}` })
      await restore.waitFor()
      t.match(await page.locator('#differences ins').first().textContent(), /five/)
      await isClean('a restoration')
      const read = async () => (await call('GET', '/persona/1', { token: tokens.admin })).json().system_prompt
      t.match(await read(), 'seven', 'the dry run stored nothing')
      await restore.press('Enter')
      await page.getByText(`Version ${before.version} is restored.`).waitFor()
      t.equal(await read(), 'Plan trips to five islands.')

      t.strictSame(await page.context().cookies(), [])
      t.equal(await page.evaluate('localStorage.length + sessionStorage.length'), 0)
      await page.getByText('Sign out').click()
      await page.getByLabel('Access token').waitFor() // the token is gone
      isSilent()
    })
  }

  await t.test('a definition is shown by the name of its field, whatever members it has', async t => {
    const { page } = await opened(t, browser, origin, 1400)
    const send = (method: string, path: string, body: object) =>
      call(method, `/admin/tool/custom${path}`, { token: tokens.admin, body })
    const shaped = { ...DEFINITION, name: 'n', id: 1, email: 'a@example.com', digest: 'd' }
    const at = (host: string) => ({ definition: { ...shaped, servers: [{ url: `https://${host}.example.com` }] } })
    const { id } = (await send('POST', '', { name: 'shaped', ...at('one'), passthrough_auth: false })).json()
    t.equal((await send('PUT', `/${id}`, at('two'))).statusCode, 200)
    await page.getByLabel('Access token').fill(tokens.admin)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Agents' }).waitFor()
    await page.goto(`${origin}/console#/tools/${id}/compare/1/2`)
    await page.locator('#differences .two pre').last().locator('ins', { hasText: 'two' }).waitFor()
    t.match(await page.locator('#pairNote').textContent(), /^1 of \d+ fields differ/)
    await page.goto(`${origin}/console#/tools/${id}`)
    await page.locator('#entries ins', { hasText: 'two' }).first().waitFor()
  })

  await t.test('answers that refuse are said in words, with a way on', async t => {
    const { page, isClean, isSilent } = await opened(t, browser, origin, 1400, /status of (40\d|413|422|503)|ERR_/)
    const title = (words: RegExp) => page.locator('#problem h2', { hasText: words }).waitFor()
    const signIn = async (token: string) => {
      await page.getByLabel('Access token').fill(token)
      await page.getByRole('button', { name: 'Sign in' }).click()
    }
    await signIn('pat_unknown')
    await title(/^This token is not valid/)
    await signIn(tokens.reader)
    await page.getByRole('heading', { name: 'Agents' }).waitFor()
    await page.goto(`${origin}/console#/agents/2147483647`)
    await title(/^It does not exist/)
    await page.goto(`${origin}/console#/agents/1/restore/1`)
    await title(/^This token does not allow that|^It does not exist/)
    await isClean('a refusal')
    await page.goto(`${origin}/console#/definition`)
    await page.getByLabel('OpenAPI definition').fill('{}')
    await title(/^This token does not allow that/)
    await page.reload()
    await signIn(tokens.admin)
    await page.getByLabel('OpenAPI definition').waitFor()
    const sent: string[] = []
    page.on('request', request => sent.push(`${request.method()} ${request.url()}`))
    for (const link of ['tools/1\\restore#/restore/1', 'agents/..\\tool\\1/restore/1', 'constructor']) {
      await page.goto(`${origin}/console#/${link}`)
      await page.waitForURL(`${origin}/console#/agents`)
    }
    const others = sent.filter(each => !/^GET \S+\/(?:me|persona\?\S+|icon\.svg)$/.test(each))
    t.strictSame(others, [], 'a link with anything but numbers asks for nothing but the list')
    await page.goto(`${origin}/console#/definition`)
    const megabytes = (count: number) => page.evaluate(putText(count * 2 ** 20))
    const box = page.getByLabel('OpenAPI definition')
    await box.waitFor()
    const isFirst = (request: Request) => request.postData()?.includes('first') === true
    await page.route('**/custom/validate*', async route => isFirst(route.request()) || (await route.continue()))
    const [asked, givenUp] = [page.waitForRequest(isFirst), page.waitForEvent('requestfailed', isFirst)]
    await box.fill('{"first": 1}')
    await asked // its answer stays away
    await box.fill('{"second": 1}')
    await page.locator('#verdict', { hasText: /^\d+ faults?,/ }).waitFor()
    await givenUp
    await page.unrouteAll()
    await megabytes(11)
    await title(/^That is larger than the service takes/)
    await megabytes(4.9)
    await page.locator('#verdict', { hasText: /^\d+ faults?,/ }).waitFor()
    await database.db.transaction().execute(async trx => {
      await sql`lock table tool`.execute(trx)
      await page.getByRole('link', { name: 'Tools' }).click()
      await title(/^The service is busy/)
      await page.getByText('This page tries again by itself.').waitFor()
      await isClean('a service that is away')
    })
    await page.getByRole('link', { name: 'weather' }).waitFor()
    t.equal(await page.locator('#problem h2').count(), 0)
    isSilent()
  })
})

/** Puts a JSON text into the box. */
const putText = (characters: number) => `(async () => {
  const line = '"' + 'x'.repeat(60) + '",\\n'
  const box = document.getElementById('box')
  box.value = '{"openapi":"3.0.3","x":[\\n' + line.repeat(${characters} / line.length) + '""]}'
  box.dispatchEvent(new Event('input'))
  await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))
})()`

/** Opens the page. `isClean` looks for what axe finds, light and dark, and for a page wider than its window. */
async function opened(t: Test, browser: Browser, origin: string, width: number, expected = /status of 422/) {
  const page: Page = await browser.newPage({ viewport: { width, height: 800 } })
  const said: string[] = []
  page.on('console', message => said.push(message.text()))
  page.on('pageerror', error => said.push(error.message))
  t.teardown(() => page.close())
  await page.goto(`${origin}/`)
  t.equal(page.url(), `${origin}/console`)
  const isClean = async (view: string) => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      await page.evaluate(AXE)
      t.strictSame(await page.evaluate(VIOLATIONS), [], `axe finds nothing: ${view}, ${colorScheme}`)
    }
    t.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), `no overflow: ${view}`)
    t.notMatch(await page.title(), /^run$/, 'no text of a user runs')
  }
  const isSilent = () =>
    t.strictSame(
      said.filter(text => !expected.test(text)),
      [],
      'the console of the browser is silent',
    )
  return { page, isClean, isSilent }
}

const VIOLATIONS =
  'axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map(node => node.html)].join()))'
