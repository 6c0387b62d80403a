import { readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { CHROMIUM, Page } from './browser.js'
import { demoApp } from './demo-app.js'
import { storedAgent } from './persona/stored-agent.js'

const skip = CHROMIUM === undefined ? 'no chromium on this machine: apt-get install chromium' : false

/** The demo organisation on a port of its own, and the page of it in a browser that reaches nothing else. */
async function docsPage(t: Test) {
  const demo = await demoApp(t, { RATE_LIMIT_PER_MINUTE: '0' })
  await demo.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = demo.app.server.address() as AddressInfo // it listens on TCP
  const page = await Page.open(CHROMIUM ?? '')
  t.teardown(() => page.close())
  return { ...demo, origin: `http://127.0.0.1:${port}`, page }
}

/** Opens every operation of the page. */
async function openOperations(page: Page): Promise<void> {
  await page.until(`document.querySelectorAll('.opblock').length >= 3`)
  await page.evaluate(
    `document.querySelectorAll('.opblock:not(.is-open) .opblock-summary-control').forEach(one => one.click())`,
  )
}

/** Sends the prefilled request of an operation, and answers the status that the page shows. */
async function send(page: Page, operation: string): Promise<string> {
  const block = `#operations-public-${operation}`
  await page.until(`/{/.test(document.querySelector('${block} textarea').value)`) // the library has filled the form
  await page.click(`${block} .btn.execute`)
  return await page.until<string>(
    `document.querySelector('${block} .live-responses-table .response .response-col_status').innerText.trim()`,
  )
}

t.test(
  '200: the prefilled requests of /docs succeed on the demo, with a token pasted in either form',
  { skip },
  async t => {
    const { database, tokens, origin, page } = await docsPage(t)
    await page.goTo(`${origin}/`) // leads to the page

    await page.type('#token', `Bearer ${tokens.admin}`)
    await page.click('#use:enabled')
    await openOperations(page)
    for (const operation of ['update_persona', 'update_custom_tool', 'validate_tool']) {
      t.match(await send(page, operation), /^200/, operation)
    }
    t.equal((await storedAgent({ database }, 1)).name, 'Travel desk')

    await page.evaluate('location.reload()')
    await page.until(`document.readyState === 'complete' && /token is set/.test(document.body.innerText)`)
    await openOperations(page)
    t.match(await send(page, 'update_persona'), /^200/, 'the token outlives a reload')

    await page.click('#forget')
    await page.until(`/No token yet/.test(document.getElementById('token-state').innerText)`)
    await page.click('#operations-public-update_persona .btn-clear')
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
  },
)

t.test('a refused paste says so and keeps nothing', { skip }, async t => {
  const { origin, page } = await docsPage(t)
  await page.goTo(`${origin}/docs`)
  await page.type('#token', 'two words')
  await page.click('#use:enabled')
  await page.until(`/not a token/.test(document.getElementById('token-state').innerText)`)
  t.equal(await page.evaluate('sessionStorage.length'), 0)
})

/** After the last change of colour has ended, what axe finds. */
const AXE = `Promise.all(document.getAnimations().map(one => one.finished.catch(() => {})))
  .then(() => axe.run({ resultTypes: ['violations'] })).then(({ violations }) => violations)`

interface Violation {
  id: string
  impact: string
  nodes: { target: string[] }[]
}

t.test(
  '/docs on a phone and a desk, in the light and in the dark: nothing overflows, nothing grave for axe',
  { skip },
  async t => {
    const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
    const { tokens, origin, page } = await docsPage(t)
    await page.goTo(`${origin}/docs`)
    await page.type('#token', tokens.admin)
    await page.click('#use:enabled')
    await page.until(`document.querySelectorAll('.opblock').length >= 3`)
    await page.evaluate(`${axe}\n;undefined`)

    const judge = async (state: string, width: number, scheme: 'light' | 'dark') => {
      await page.show({ width, scheme })
      await page.until(`document.documentElement.classList.contains('dark-mode') === ${scheme === 'dark'}`)
      const name = `${state}, ${width} px, ${scheme}`
      t.ok((await page.evaluate<number>('document.documentElement.scrollWidth')) <= width, name)
      const found = await page.evaluate<Violation[]>(AXE)
      const grave = found.filter(({ impact }) => impact === 'critical' || impact === 'serious')
      const shown = grave.map(
        ({ id, nodes }) =>
          `${id}: ${nodes
            .map(node => node.target)
            .slice(0, 5)
            .join(' | ')}`,
      )
      t.strictSame(shown, [], name)
      await keep(page, `docs-${state}-${width}-${scheme}.png`)
    }
    await judge('closed', 375, 'light')
    await judge('closed', 1280, 'light')
    await judge('closed', 375, 'dark')
    await judge('closed', 1280, 'dark')
    await openOperations(page)
    for (const operation of ['update_persona', 'update_custom_tool', 'validate_tool']) await send(page, operation)
    await judge('sent', 1280, 'dark')
    await judge('sent', 375, 'light')
  },
)

/** With SCREENSHOTS_DIR set, what the page looks like ends there. */
async function keep(page: Page, file: string): Promise<void> {
  const folder = process.env.SCREENSHOTS_DIR
  if (folder !== undefined) await writeFile(`${folder}/${file}`, await page.screenshot())
}
