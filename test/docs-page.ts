import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { CHROMIUM, Page } from './browser.js'
import { demoApp } from './demo-app.js'

/** Why the tests of the page are skipped, if they are. */
export const skip = CHROMIUM === undefined ? 'no chromium on this machine: apt-get install chromium' : false

/** The demo organisation on a port of its own, and the page of it in a browser that reaches nothing else. */
export async function docsPage(t: Test, preferences: object = {}) {
  const demo = await demoApp(t, { RATE_LIMIT_PER_MINUTE: '0' })
  await demo.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = demo.app.server.address() as AddressInfo // it listens on TCP
  const page = await Page.open(CHROMIUM ?? '', preferences)
  t.teardown(() => page.close())
  return { ...demo, origin: `http://127.0.0.1:${port}`, page }
}

/** Opens every operation of the page. */
export async function openOperations(page: Page): Promise<void> {
  await page.until(`document.querySelectorAll('.opblock').length >= 3`)
  await page.evaluate(
    `document.querySelectorAll('.opblock:not(.is-open) .opblock-summary-control').forEach(one => one.click())`,
  )
}

/** Sends the prefilled request of an operation, and answers the status that the page shows. */
export async function send(page: Page, operation: string): Promise<string> {
  const block = `#operations-public-${operation}`
  // The library has filled the form: an identifier, and the body where there is one.
  const filled = `[...document.querySelectorAll('${block} textarea')].every(one => one.value.includes('{'))`
  await page.until(`document.querySelector('${block} .btn.execute') !== null && ${filled}`)
  // The row of the identifier may not be there yet: only where no identifier is asked for is there nothing to wait for.
  if (operation !== 'validate_tool')
    await page.until(`document.querySelector('${block} tr[data-param-in="path"] input').value`)
  await page.click(`${block} .btn.execute`)
  return await page.until<string>(
    `document.querySelector('${block} .live-responses-table .response .response-col_status').innerText.trim()`,
  )
}
