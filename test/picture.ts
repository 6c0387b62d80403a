import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'
import { demoApp } from './demo-app.js'
import { startServer } from './postgres.js'
import { listening } from './test-service.js'

/* `npm run picture` makes the picture for README, docs/page.png: a tool of the demo organisation with a fault in its definition. */

const PICTURE = fileURLToPath(new URL('../../docs/page.png', import.meta.url))
const PATH = '/forecast/{place}'
const FIRST = {
  openapi: '3.1.0',
  info: { title: 'Weather', version: '2' },
  servers: [{ url: 'https://weather.example.com/v2' }],
}
const BYTES_MAX = 150_000

const teardowns: (() => unknown)[] = []
const server = await startServer()
try {
  process.env.TEST_SERVER_URL = server.url
  const { app, call, tokens } = await demoApp({ teardown: end => void teardowns.push(end) })
  const origin = `http://127.0.0.1:${await listening(app)}`
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium'
  const browser = await chromium.launch({ executablePath, args: ['--headless', '--no-sandbox', '--disable-gpu'] })
  teardowns.push(() => browser.close())
  const page = await browser.newPage({ viewport: { width: 1240, height: 860 }, colorScheme: 'light' })
  page.setDefaultTimeout(300_000) // the machine may be busy
  await page.goto(origin)
  await page.keyboard.type(tokens.admin)
  await page.keyboard.press('Enter')
  await page.getByRole('link', { name: 'Tools', exact: true }).first().click()
  await page.getByRole('link', { name: 'weather', exact: true }).click()
  await page.locator('.use', { hasText: /^\d+ agents?\.$/ }).waitFor()
  const definition = page.getByLabel('OpenAPI definition')
  const { summary: _, ...get } = (await call('GET', '/tool/1', { token: tokens.admin })).json().definition.paths[PATH]
    .get
  await definition.fill(JSON.stringify({ ...FIRST, paths: { [PATH]: { get } } }, null, 2))
  await page.locator('#verdict', { hasText: /^1 fault/ }).waitFor()
  await definition.press('Control+Home')
  await page.evaluate('scrollTo(0, 0)')
  const picture = await page.screenshot()
  if (picture.length > BYTES_MAX) throw new Error(`the picture has ${picture.length} bytes; at most ${BYTES_MAX}`)
  writeFileSync(PICTURE, picture)
} finally {
  for (const end of teardowns.reverse()) await end()
  await server.leave()
}
