import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { Browser, CHROMIUM, type Page } from './browser.js'
import { demoApp } from './demo-app.js'

/** Why the tests of the page are skipped, if they are. */
export const skip = CHROMIUM === undefined ? 'no chromium on this machine: apt-get install chromium' : false

/** The demo organisation on a port of its own, and a browser that reaches nothing else; `page` opens a tab of it for a test. */
export async function docsSite(t: Pick<Test, 'teardown'>, preferences: object = {}) {
  const demo = await demoApp(t, { RATE_LIMIT_PER_MINUTE: '0' })
  await demo.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = demo.app.server.address() as AddressInfo // it listens on TCP
  const browser = await Browser.start(CHROMIUM ?? '', preferences)
  t.teardown(() => browser.close())
  const page = async (t: Pick<Test, 'teardown'>) => {
    const page = await browser.open()
    t.teardown(() => page.close())
    return page
  }
  return { ...demo, origin: `http://127.0.0.1:${port}`, page }
}

/** Opens an operation, as a reader does who wants to try it, and waits until the library has read what it refers to. */
export async function open(page: Page, operation: string): Promise<void> {
  const block = `#operations-public-${operation}`
  await page.click(`${block}:not(.is-open) .opblock-summary-control`)
  await page.until(
    `document.querySelector('${block}.is-open') && !document.querySelector('${block} .opblock-loading-animation')`,
  )
}

/** Closes it again. */
export async function close(page: Page, operation: string): Promise<void> {
  await page.click(`#operations-public-${operation}.is-open .opblock-summary-control`)
  await page.until(`document.querySelector('#operations-public-${operation}:not(.is-open)') !== null`)
}

/** Sends the prefilled request of an operation, and answers the status that the page shows. */
export async function send(page: Page, operation: string): Promise<string> {
  const block = `#operations-public-${operation}`
  // The library has filled the form: identifiers in the path, and the body, which all but a GET have.
  const identified = `[...document.querySelectorAll('${block} tr[data-param-in="path"] input')]`
  await page.until(`document.querySelector('${block} .btn.execute') !== null
    && ${identified}.filter(({ value }) => value !== '').length
      === document.querySelector('${block} .opblock-summary-path').dataset.path.split('{').length - 1
    && (document.querySelector('${block}.opblock-get') !== null
      || document.querySelector('${block} textarea').value.includes('{'))`)
  await page.click(`${block} .btn.execute`)
  return await page.until<string>(
    `document.querySelector('${block} .live-responses-table .response .response-col_status').innerText.trim()`,
  )
}
