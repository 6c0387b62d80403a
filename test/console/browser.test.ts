import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { sql } from 'kysely'
import { type Browser, chromium, type Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { demoApp } from '../demo-app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { listening } from '../test-service.js'

const CHROMIUM = process.env['CHROMIUM'] ?? '/usr/bin/chromium'
const skip = existsSync(CHROMIUM) ? false : `no ${CHROMIUM} on this machine: apt-get install chromium, or set CHROMIUM`
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const TAGS = '<img src=x onerror="document.title=\'run\'"><script>document.title="run"</script>'
const SCRIPT = `${TAGS}\u202e\u{e0041}`

const BROKEN = { openapi: '3.0.3', info: { title: 'Orders' }, paths: { '/orders/{id}': { get: { parametres: [] } } } }
const YAML = `# our orders
openapi: 3.0.3
info: {title: Orders}
servers:
  - url: https://orders.example.com
paths:
  /orders/{id}:
    get: {summary: Read an order, x-odd: [1.0, 10000000000000001, 1E+2, 0x10]} # one
`

t.test('the page is a place to work', { skip }, async t => {
  const { app, call, database, tokens } = await demoApp(t, { LOCK_TIMEOUT_MS: '2000' })
  const origin = `http://127.0.0.1:${await listening(app)}`
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] })
  t.teardown(() => browser.close())
  const send = (method: string, path: string, body: object) => call(method, path, { token: tokens.admin, body })
  const edit = (fields: object, mask = Object.keys(fields).join()) =>
    send('PATCH', `/persona/1?update_mask=${mask}`, fields)
  const agent = async () => (await call('GET', '/persona/1', { token: tokens.admin })).json()
  await edit({ name: `Planner ${SCRIPT}`, system_prompt: 'Plan trips to five islands.' })

  for (const width of [1400, 390]) {
    await t.test(`the jobs, at ${width} pixels`, async t => {
      const { page, answered, signIn, isClean, isSilent, press, state } = await opened(t, browser, origin, width)
      await page.keyboard.type(tokens.admin) // the token field already has focus
      await isClean('sign-in')
      await page.keyboard.press('Enter')
      await page.getByRole('link', { name: 'Chapter editor' }).waitFor()
      await isClean('agents')
      await page.getByLabel('Search').fill('PLANNER alice')
      await state(/^1 found among \d+ agents$/)
      t.match(await page.locator('table').textContent(), '<img src=x', 'a text of a user is a text')

      const [before] = (await call('GET', '/persona/1/history', { token: tokens.admin })).json()
      await page.getByRole('link', { name: 'Planner' }).press('Enter')
      await page.getByLabel('Prompt').fill(`Plan trips to seven islands, ${width}.`)
      await page.getByText('Not saved: Prompt').waitFor()
      t.equal(await page.locator('.change button').count(), 0, 'no restoration drops what is typed')
      await isClean('an agent that is edited')
      const tools = page.getByRole('link', { name: 'Tools', exact: true }).first()
      const [asked] = await Promise.all([answered(false), tools.press('Enter')])
      t.match(asked.message(), /^Leave without saving\? Your changes to Planner/)
      await press('Review and save')
      await page.locator('dialog del', { hasText: 'five' }).waitFor()
      t.match(await page.locator('dialog ins').first().textContent(), 'seven')
      await isClean('the difference before it is saved')
      t.match((await agent()).system_prompt, 'five', 'the dry run stored nothing')
      await edit({ description: `Others work too, ${width}.`, system_prompt: 'Plan trips to nine islands.' })
      await press('Save')
      await page
        .locator('dialog .problem', { hasText: /^Somebody has changed this.*\d.*: admin@example\.com changed Prompt/ })
        .waitFor()
      await isClean('a change of somebody else')
      await press('Reload')
      await page.locator('dialog del', { hasText: 'nine' }).waitFor()
      await state('Saved.', 'Save')
      t.match(await agent(), {
        system_prompt: `Plan trips to seven islands, ${width}.`,
        description: `Others work too, ${width}.`,
      })

      await press('Add a starter message')
      await page.locator('.pair input:focus').waitFor()
      await page.keyboard.type(`Islands ${width}`)
      await page.getByLabel(`Message of Islands ${width}`).fill('Which islands are warm?')
      await page.getByLabel('Add a person').selectOption('admin@example.com')
      await page.getByText('Not saved: Starter messages, Users').waitFor()
      await press('Review and save')
      await page.locator('dialog ins', { hasText: 'admin@example.com' }).waitFor()
      await state('Saved.', 'Save')
      const { starter_messages, users } = await agent()
      t.match(starter_messages.at(-1), { name: `Islands ${width}`, message: 'Which islands are warm?' })
      t.match(users.at(-1), { email: 'admin@example.com' })
      await edit({ users: [] })
      await signIn(tokens.admin, page.reload())

      const entry = page.locator('.change', { hasText: 'Prompt' }).first()
      await entry.locator('summary').press('Enter')
      await entry.locator('ins', { hasText: 'seven' }).waitFor()
      t.match(await entry.locator('pre').first().textContent(), 'Plan trips to', 'what is the same is there too')
      await isClean('an agent and its changes')
      const older = page.locator('.change', { hasText: `Version ${before.version + 1},` })
      await older.locator('summary').press('Enter')
      await page.getByRole('button', { name: `Restore version ${before.version}`, exact: true }).press('Enter')
      await page.locator('dialog ins', { hasText: 'five' }).waitFor()
      await isClean('a restoration')
      const inDialog = page.locator('dialog').getByRole('button', { name: `Restore version ${before.version}` })
      await inDialog.dblclick()
      await page.getByLabel('Prompt').filter({ hasText: 'five islands' }).waitFor()
      await page.locator('.change', { hasText: 'restored by' }).first().waitFor()
      t.equal((await agent()).system_prompt, 'Plan trips to five islands.')

      await tools.press('Enter')
      await page.getByRole('link', { name: 'New tool' }).click()
      await page.getByLabel('Name', { exact: true }).fill(`orders ${width}`)
      const box = page.getByLabel('OpenAPI definition')
      await box.fill(JSON.stringify(BROKEN, null, 2))
      await page.locator('#verdict', { hasText: /^4 faults, 1 warning\.$/ }).waitFor()
      t.match(await page.locator('.findings').textContent(), /Fault, line 8the operation needs an operationId/)
      await box.press('F8')
      await page.locator('.cm-tooltip', { hasText: 'names no server' }).waitFor()
      await page.keyboard.press('Escape')
      await box.press('Tab')
      t.not(await page.evaluate('document.activeElement.className.includes("cm-content")'), true, 'the keyboard leaves')
      await isClean('a definition with faults')
      await press('Repair')
      await page.getByLabel('Server URL, if the definition has none').fill('https://orders.example.com')
      await press('Use this server')
      await page.locator('dialog ins', { hasText: 'https://orders.example.com' }).waitFor()
      await isClean('a repair')
      await press('Put this into the editor')
      await page.locator('.cm-content:focus').waitFor()
      await page.locator('details', { hasText: 'orders_id_get' }).waitFor()
      await state(/Tool \d+, version 1, owner: admin@example.com/, 'Create the tool', 'Create')

      await tools.press('Enter')
      await page.getByRole('link', { name: 'weather', exact: true }).press('Enter')
      await page.locator('.use', { hasText: /^\d+ agents?\.$/ }).waitFor()
      await page.getByRole('link', { name: /^Planner/ }).waitFor()
      await isClean('a tool')
      await page.getByLabel('Value of X-Api-Key').fill(`secret ${width}`)
      await page.getByText('A proposal cannot contain header values').waitFor()
      t.equal(await page.getByRole('button', { name: 'Propose' }).count(), 0, 'a proposal holds no secret')
      const { definition } = (await call('GET', '/tool/1', { token: tokens.admin })).json()
      await box.fill(JSON.stringify(definition).replace(/get_forecast\w*/, `get_forecast_${width}`))
      await page.locator('.changes', { hasText: `get_forecast_${width}` }).waitFor()
      await press('Review and save')
      await page.locator('dialog h2', { hasText: 'GET /forecast/{place}' }).waitFor()
      await page.locator('dialog a[target=_blank]', { hasText: /^Planner/ }).waitFor() // an agent that the change affects
      await isClean('whom a definition affects')
      await state('Saved.', 'Save')
      await page.locator('.change summary').first().press('Enter')
      await page.locator('.change h2', { hasText: 'GET /forecast/{place}' }).waitFor()

      t.strictSame(await page.context().cookies(), [])
      t.equal(await page.evaluate('localStorage.length + sessionStorage.length'), 0)
      await page.getByRole('link', { name: 'Sign out' }).press('Enter')
      await page.getByLabel('Access token').waitFor()
      isSilent()
    })
  }

  await t.test('one proposes, another approves; all that happened is listed', async t => {
    const expected = /status of (403|404|412|422)/
    const { page, answered, signIn, isClean, isSilent, press, state } = await opened(t, browser, origin, 390, expected)
    await signIn(tokens.reader)
    await page.goto(`${origin}/console#/agents/3`)
    await state('You can propose changes.')
    t.equal(await page.getByText(/^Restore/).count(), 0)
    await page.getByLabel('Prompt').fill('Answer in one sentence.')
    t.equal(await page.getByRole('button', { name: 'Review and save' }).count(), 0, 'what it may not is not shown')
    await press('Propose')
    await page.getByLabel('Message to the approvers').fill(`Shorter ${TAGS}`)
    await page.locator('dialog ins', { hasText: 'one sentence' }).waitFor()
    await isClean('a proposal before it is made')
    await page.locator('dialog').getByRole('button', { name: 'Propose' }).press('Enter')
    await page.getByRole('heading', { name: 'Proposed change to Welcome' }).waitFor()
    await page.getByRole('button', { name: 'Withdraw' }).waitFor()
    t.equal(await page.getByRole('button', { name: 'Approve' }).count(), 0, 'authors cannot approve their own')
    await signIn(tokens.admin, page.reload())
    await page.getByRole('link', { name: 'Proposals' }).first().press('Enter')
    await page.getByRole('link', { name: 'Welcome: Prompt' }).waitFor()
    await isClean('proposals')
    await page.getByRole('link', { name: 'Welcome: Prompt' }).press('Enter')
    await page.locator('.difference ins', { hasText: 'one sentence' }).waitFor()
    t.equal((await send('PATCH', '/persona/3?update_mask=description', { description: 'Ours.' })).statusCode, 200)
    await press('Approve')
    await page.locator('.problem h2', { hasText: /^Somebody has changed this/ }).waitFor()
    await press('Reload')
    await page.getByText('admin@example.com changed Description').waitFor()
    t.match(await page.locator('blockquote').textContent(), 'Shorter <img')
    await isClean('a proposal')
    await state('approved by admin@example.com', 'Approve')
    t.equal((await call('GET', '/persona/3', { token: tokens.admin })).json().system_prompt, 'Answer in one sentence.')

    t.equal((await call('DELETE', '/persona/2', { token: tokens.admin })).statusCode, 204)
    await page.getByRole('link', { name: 'Changes', exact: true }).press('Enter')
    await page.locator('.change', { hasText: 'Chapter editorDeleted' }).waitFor()
    const update = page.locator('.change', { hasText: 'WelcomePrompt' }).first()
    await update.locator('summary').press('Enter')
    await update.locator('.difference ins', { hasText: 'one sentence' }).waitFor()
    await isClean('changes')
    await page.getByRole('link', { name: 'Agents' }).press('Enter')
    await page.getByLabel('Deleted agents').press('Space')
    await state('1 deleted agent')
    await isClean('deleted agents')
    await page.getByRole('link', { name: 'Chapter editor' }).press('Enter')
    await page.locator('h1', { hasText: 'Chapter editor' }).waitFor()
    await page.getByRole('button', { name: 'Restore version 1' }).press('Enter')
    await page.locator('dialog').getByRole('button', { name: 'Restore version 1', disabled: false }).press('Enter')
    await state('Restored. Agent 2, version 3')
    await press('Delete this agent', 'Delete')
    await page.getByRole('link', { name: 'New agent' }).click()
    await page.getByLabel('Name', { exact: true }).fill('Proofreader')
    await state(/^Created\. Agent \d+, version 1, owner: admin/, 'Create the agent', 'Create')

    const path = '/persona/3?update_mask=name,tool_ids&propose=true'
    const { headers } = await call('GET', '/persona/3', { token: tokens.admin })
    const [body, tag] = [{ name: 'Editor', tool_ids: [1] }, { 'if-match': String(headers.etag) }]
    const { id } = (await call('PATCH', path, { token: tokens.admin, body, headers: tag })).json()
    await send('POST', `/proposals/${id}/withdraw`, {})
    await page.goto(`${origin}/console#/proposals/${id}`)
    await page.locator('.difference del', { hasText: 'Welcome' }).waitFor()
    await press('Propose again')
    await page.getByText('Not saved: Name, Tools').waitFor()
    t.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'Editor')
    await press('Review and save')
    await page.locator('dialog ins', { hasText: 'weather' }).waitFor() // the dry run has succeeded
    await Promise.all([answered(true), press('Close', 'Discard')])
    isSilent()
  })

  await t.test('a definition in YAML is checked at its lines, and repaired with its comments', async t => {
    const { page, signIn, isSilent, press, state } = await opened(t, browser, origin, 1400)
    await signIn(tokens.admin)
    await page.goto(`${origin}/console#/tools/0`)
    const file = (text: string | Buffer) => ({ name: 'orders.yaml', mimeType: 'text/yaml', buffer: Buffer.from(text) })
    const open = (text: string | Buffer) => page.locator('input[type=file]').setInputFiles(file(text))
    await open(Buffer.from(YAML.replace('our', 'ou\xe9r'), 'latin1'))
    await page.getByText('orders.yaml is not UTF-8: see line 1').waitFor()
    await open(YAML)
    await page.locator('.findings', { hasText: 'Fault, line 8' }).waitFor()
    await press('Repair', 'Put this into the editor')
    await page.locator('details', { hasText: 'orders_id_get' }).waitFor()
    t.match(await page.getByLabel('OpenAPI definition').textContent(), /# our orders.*operationId: orders_id_get/s)
    await page.getByText('comments are not kept').waitFor()
    await page.getByLabel('OpenAPI definition').press('Control+z')
    await page.locator('.findings', { hasText: 'Fault, line 8' }).waitFor()
    await page.getByLabel('OpenAPI definition').press('Control+y')
    await page.getByLabel('Name', { exact: true }).fill('odd')
    await state(/^Created/, 'Create the tool', 'Create')
    const { id } = (await call('GET', '/tool?name=odd', { token: tokens.admin })).json()[0]
    const { body } = await call('GET', `/tool/${id}`, { token: tokens.admin })
    t.match(body, '"x-odd":[1.0,10000000000000001,1E+2,16]', 'numbers are stored as they were written')
    await page.goto(`${origin}/console#/tools/0`)
    await open(YAML.replace('0x10', '0x7fffffffffffffff'))
    await page.locator('.findings', { hasText: 'JSON cannot hold the number' }).waitFor()
    await page.getByLabel('OpenAPI definition').fill('')
    await page.locator('#verdict', { hasText: /^Paste/ }).waitFor()
    t.equal(await page.locator('h1').count(), 1, 'a text without the faults leaves one view')
    await open(`openapi: 3.0.3\n${'# a line\n'.repeat(300)}info: [`)
    await page.locator('.findings', { hasText: 'This is not YAML' }).waitFor()
    await page.locator('.cm-line', { hasText: 'info: [' }).waitFor() // the line of the first fault is in view
    isSilent()
  })

  await t.test('412: a typed definition stays; one that nobody touched follows what is stored', async t => {
    const { page, signIn, press, state } = await opened(t, browser, origin, 1400)
    const stored = async () => (await call('GET', '/tool/1', { token: tokens.admin })).json()
    const { definition } = await stored()
    const titled = (title: string) => ({ ...definition, info: { ...definition.info, title } })
    await signIn(tokens.admin)
    const save = async () => {
      await press('Review and save', 'Reload')
      await page.locator('dialog .difference').first().waitFor()
      await state('Saved.', 'Save')
    }
    await page.route(/tool.limit=100/, route => route.abort()) // the view of a tool must not need the list of all tools to show the owner
    await page.goto(`${origin}/console#/tools/1`)
    await page.locator('.use').waitFor()
    await state('owner: admin@example.com')
    await page.getByLabel('Description').fill('Typed here.')
    await send('PUT', '/admin/tool/custom/1', { definition: titled('Theirs') })
    await save()
    t.match(await stored(), { description: 'Typed here.', definition: { info: { title: 'Theirs' } } })
    await page.getByLabel('Description').fill('Taken back.')
    await page.getByLabel('Description').fill('Typed here.')
    await page.getByLabel('OpenAPI definition').fill(JSON.stringify(titled('Mine')))
    await page.locator('#verdict', { hasText: /^0 faults/ }).waitFor()
    await send('PUT', '/admin/tool/custom/1', { definition: titled('Theirs again'), description: 'Theirs.' })
    await save()
    t.match(await stored(), { description: 'Theirs.', definition: { info: { title: 'Mine' } } })
    await press('Add a header')
    await page.locator('.pair input:focus').pressSequentially('X-Mine')
    await page.getByLabel('Value of X-Mine').fill('mine')
    await send('PUT', '/admin/tool/custom/1', { custom_headers: [{ key: 'X-Api-Key', value: 'theirs' }] })
    await save()
    t.match((await stored()).custom_headers, [{ key: 'X-Api-Key' }, { key: 'X-Mine' }])
  })

  await t.test('a definition is shown by the name of its field, whatever members it has', async t => {
    const { page, signIn, press } = await opened(t, browser, origin, 1400)
    const shaped = { ...DEFINITION, name: 'n', id: 1, email: 'a@example.com', digest: 'd' }
    const at = (host: string) => ({ definition: { ...shaped, servers: [{ url: `https://${host}.example.com` }] } })
    const shape = { name: 'shaped', ...at('one'), passthrough_auth: false }
    const { id } = (await send('POST', '/admin/tool/custom', shape)).json()
    t.equal((await send('PUT', `/admin/tool/custom/${id}`, at('two'))).statusCode, 200)
    await signIn(tokens.admin)
    await page.goto(`${origin}/console#/tools/${id}`)
    await page.locator('.change summary').press('Enter')
    await page.locator('.change h2').waitFor()
    t.strictSame(await page.locator('.change h2').allTextContents(), ['Definition, servers'])
    await page.locator('.change ins', { hasText: 'https://two.example.com' }).waitFor() // the whole address is marked as changed
    await page.getByLabel('OpenAPI definition').fill(JSON.stringify(at('three').definition))
    await press('Save as a new tool')
    await page.locator('dialog ins', { hasText: 'https://three.example.com' }).waitFor()
    await page.getByRole('button', { name: 'Create', exact: true }).dblclick()
    await page.locator('h1', { hasText: 'shaped (copy)' }).waitFor()
    const all = (await call('GET', '/tool', { token: tokens.admin })).json()
    t.equal(all.filter(({ name }: { name: string }) => /^shaped/.test(name)).length, 2)
    t.equal((await call('DELETE', `/admin/tool/custom/${id}`, { token: tokens.admin })).statusCode, 204)
    await page.getByRole('link', { name: 'Changes', exact: true }).click()
    const gone = page.locator('.change', { hasText: `Tool ${id}` })
    await gone.first().waitFor()
    await page.locator('.change', { hasText: 'weather' }).locator('button').first().waitFor({ state: 'attached' })
    t.equal(await gone.locator('button').count(), 0, 'it stays deleted')
  })

  await t.test('what keeps the page from working is distinguished, with a way on', async t => {
    const expected = /status of (40\d|413|422|50\d)|ERR_|of its own/
    const { page, answered, fill, signIn, isClean, isSilent, press } = await opened(t, browser, origin, 1400, expected)
    const once: Page['route'] = (url, answer) => page.route(url, answer, { times: 1 })
    const title = (words: RegExp) => page.locator('.problem h2', { hasText: words }).waitFor()
    await fill('pat_\u200bhidden')
    await title(/^The token contains a space or another invalid character/)
    await fill('pat_unknown')
    await title(/token/)
    await signIn(tokens.reader)
    await page.goto(`${origin}/console#/agents/2147483647`)
    await title(/^No agent with this id/)
    await isClean('a refusal')
    await page.goto(`${origin}/console#/tools`)
    await page.getByRole('link', { name: 'weather', exact: true }).click()
    await page.locator('#state', { hasText: 'This token cannot change this record' }).waitFor()
    const edits = page.getByRole('button', { name: /Save|Add|Remove|Restore/ })
    t.equal(await edits.count(), 0, 'what it may not is not shown')
    const shown = [/\/history/, /view=functions/].map(one => page.waitForResponse(one)) // the last requests of the view
    await signIn(tokens.admin, page.reload())
    await Promise.all(shown)
    const sent: string[] = []
    page.on('request', request => sent.push(`${request.method()} ${request.url()}`))
    for (const link of ['tools/1\\restore#/restore/1', 'agents/..\\tool\\1/restore/1', 'constructor']) {
      await page.goto(`${origin}/console#/${link}`)
      await page.waitForURL(`${origin}/console#/agents`)
    }
    const others = sent.filter(each => !/^GET \S+\/(?:me|persona\?\S+|icon\.svg|console\S*)$/.test(each))
    t.strictSame(others, [], 'a link with anything but numbers asks for nothing but the list')

    const bad = { status: 502, contentType: 'text/html', body: '<h1>Bad</h1>' }
    await once(/\/tool\?/, route => route.fulfill(bad))
    await page.getByRole('link', { name: 'Tools' }).click()
    await title(/^A proxy in front of the service answered/)
    await page.getByText('This page tries again automatically.').waitFor()
    await page.getByRole('link', { name: 'weather', exact: true }).waitFor()
    await once(/\/persona\?/, route => route.abort('connectionrefused'))
    await page.getByRole('link', { name: 'Agents' }).click()
    await title(/^No connection to the service/)
    await page.getByRole('link', { name: 'Welcome' }).waitFor()
    t.equal(await page.locator('.problem').count(), 0)
    await page.evaluate('setTimeout(() => { throw new Error("of its own") })')
    await title(/^An error occurred in this page/)

    let release = () => {}
    const held = new Promise<void>(resolve => (release = resolve))
    await once(/\/tool\?/, route => held.then(() => route.fulfill({ json: [null], headers: { 'x-request-id': 'a' } })))
    await page.goto(`${origin}/console#/agents/1`)
    await page.getByLabel('Description').fill('Typed before a fault.')
    release()
    await press('Try again')
    t.match(await page.getByLabel('What you typed').inputValue(), 'description: Typed before a fault.')
    await Promise.all([answered(true), page.goto(`${origin}/console#/agents`)])

    await page.goto(`${origin}/console#/agents/1`)
    await page.getByLabel('Description').fill('Typed while the session ended.')
    const ended = { status: 401, json: { detail: 'ended' }, headers: { 'x-request-id': 'a' } }
    await once(/update_mask/, route => route.fulfill(ended))
    await press('Review and save')
    await page.getByRole('heading', { name: 'Your session has ended' }).waitFor()
    await isClean('a session that ended')
    await fill(tokens.admin)
    await page.getByRole('heading', { name: 'Your session has ended' }).waitFor({ state: 'detached' })
    await page.locator('dialog ins', { hasText: 'Typed while' }).waitFor() // the review continues after the sign-in
    await press('Close')
    await page.locator('.savebar', { hasText: 'Not saved: Description.' }).locator('.main:focus').waitFor()
    t.equal(await page.getByLabel('Description').inputValue(), 'Typed while the session ended.', 'the text is kept')
    const refused = { ...ended, status: 403, json: { error_code: 'APPROVAL_REQUIRED', detail: 'Propose it' } }
    await once(/update_mask=description$/, route => route.fulfill(refused))
    await press('Review and save', 'Save')
    await page.getByRole('heading', { name: 'This change needs approval. Propose' }).waitFor()
    await once(/propose/, route => route.fulfill(ended))
    await press('Close', 'Propose')
    await page.locator('dialog').getByRole('button', { name: 'Propose', disabled: false }).click()
    await page.getByRole('heading', { name: 'Your session has ended' }).waitFor()
    await Promise.all([answered(false), fill(tokens.reader)])
    await title(/^What you typed is kept/)
    await Promise.all([answered(true), fill(tokens.reader)])
    await page.getByRole('heading', { name: 'Agents', exact: true }).waitFor() // a different user starts with an empty view
    t.equal(await page.locator('dialog, .savebar').count(), 0)
    await signIn(tokens.admin, page.reload())

    await page.goto(`${origin}/console#/tools/0`)
    const box = page.getByLabel('OpenAPI definition')
    await box.waitFor()
    const paste = (megabytes: number) => page.evaluate(pasteText(megabytes * 2 ** 20))
    await paste(11)
    await title(/larger|at most/)
    await paste(1)
    await page.locator('#verdict', { hasText: /^\d+ faults?,/ }).waitFor()
    await box.press('a')
    await page.locator('#verdict', { hasText: 'Checking.' }).waitFor()
    await page.locator('#verdict', { hasText: /^\d+ faults?,/ }).waitFor()
    const left = answered(true)
    await database.db.transaction().execute(async trx => {
      await sql`lock table persona`.execute(trx)
      await page.getByRole('link', { name: 'Agents' }).click()
      await left
      await page.getByText('This page tries again automatically.').waitFor()
      await isClean('a service that is away')
    })
    await page.getByRole('link', { name: 'Welcome' }).waitFor()
    t.equal(await page.locator('.problem h2').count(), 0)
    await page.route(/reader\.js/, route => route.abort())
    await signIn(tokens.admin, page.reload())
    await page.goto(`${origin}/console#/tools/1`)
    await title(/^This page can no longer read definitions/)
    isSilent()
  })
})

/** Returns a script that replaces the editor's text with pasted JSON of about this length. */
const pasteText = (characters: number) => `(async () => {
  const line = '"' + 'x'.repeat(60) + '",\\n'
  const text = '{"openapi":"3.0.3","x":[\\n' + line.repeat(${characters} / line.length) + '""]}'
  const box = document.querySelector('.cm-content')
  box.focus()
  document.execCommand('selectAll')
  const clipboardData = new DataTransfer()
  clipboardData.setData('text/plain', text)
  box.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }))
  await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))
})()`

/** Opens the page. The returned `isClean` requires that axe finds nothing in light and dark mode, and that the page fits into its window. */
async function opened(t: Test, browser: Browser, origin: string, width: number, expected = /status of 4(12|22)/) {
  const page: Page = await browser.newPage({ viewport: { width, height: 800 } })
  page.setDefaultTimeout(300_000) // the machine may be busy
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
      const rules = colorScheme === 'light' ? {} : { runOnly: ['color-contrast'] } // only contrast depends on colours
      const found = await page.evaluate(`(${VIOLATIONS})(${JSON.stringify(rules)})`)
      t.strictSame(found, [], `axe finds nothing: ${view}, ${colorScheme}`)
    }
    t.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), `no overflow: ${view}`)
    const reached: unknown[] = []
    const stops = await page.evaluate<number>(STOPS)
    for (let stop = 0; stop <= stops; stop++) {
      reached.push(await page.evaluate('stopAt()'))
      await page.keyboard.press('Tab')
    }
    t.strictSame(
      reached,
      [...Array(stops).keys(), -1],
      `Tab reaches all, in order, each with an outline, and leaves: ${view}`,
    )
    await page.evaluate('focused.focus()')
    t.notMatch(await page.title(), /^run$/, 'no text of a user runs')
  }
  const answered = (is: boolean) =>
    page.waitForEvent('dialog', dialog => (is ? dialog.accept() : dialog.dismiss()).then(() => true))
  const unexpected = () => said.filter(text => !expected.test(text))
  const isSilent = () => t.strictSame(unexpected(), [], 'the console of the browser is silent')
  const press = async (...labels: string[]) => {
    for (const name of labels)
      await page.getByRole('button', { name, exact: true, disabled: false }).last().press('Enter')
  }
  const state = async (hasText: string | RegExp, ...labels: string[]) => {
    await press(...labels)
    await page.locator('#state', { hasText }).waitFor()
  }
  const fill = async (token: string) => {
    await page.getByLabel('Access token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }
  const signIn = async (token: string, before?: Promise<unknown>) => {
    await before
    await fill(token)
    await page.getByRole('button', { name: 'Sign in' }).waitFor({ state: 'detached' })
  }
  return { page, answered, fill, signIn, isClean, isSilent, press, state }
}

/** Focuses the first Tab stop and returns the number of stops. `stopAt` returns the index of the focused stop, or its HTML if it has no outline. */
const STOPS = `(() => {
  focused = document.activeElement
  const root = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document
  const names = 'a[href], button:enabled, input:enabled, select:enabled, textarea:enabled, summary, [tabindex="0"]'
  const stops = [...root.querySelectorAll(names)].filter(each => each.checkVisibility())
  stopAt = () => {
    const now = document.activeElement
    const { outlineStyle } = getComputedStyle(now.closest('.cm-editor, label.button') ?? now)
    return stops.includes(now) && outlineStyle === 'none' ? now.outerHTML : stops.indexOf(now)
  }
  stops[0].focus({ focusVisible: true })
  return stops.length
})()`

const VIOLATIONS = `options =>
  axe.run(options).then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map(node => node.html)].join()))`
