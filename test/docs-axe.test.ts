import { readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import t from 'tap'
import type { Page } from './browser.js'
import { close, docsSite, open, send, skip } from './docs-page.js'

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
    const { tokens, origin, ...site } = await docsSite(t)
    const page = await site.page(t)
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
    const operations = await page.evaluate<string[]>(
      `[...document.querySelectorAll('.opblock')].map(({ id }) => id.replace('operations-public-', ''))`,
    )
    t.ok(operations.length > 6)
    // One at a time: what axe needs grows faster than what is open. The updates are sent, and seen both ways.
    for (const [index, operation] of operations.entries()) {
      await open(page, operation)
      const isRead = /^(read|list)_/.test(operation)
      if (!isRead) await send(page, operation)
      if (!isRead || index % 2 === 0) await judge(operation, 1280, 'dark')
      if (!isRead || index % 2 === 1) await judge(operation, 375, 'light')
      await close(page, operation)
    }
  },
)

/** With SCREENSHOTS_DIR set, what the page looks like ends there. */
async function keep(page: Page, file: string): Promise<void> {
  const folder = process.env.SCREENSHOTS_DIR
  if (folder !== undefined) await writeFile(`${folder}/${file}`, await page.screenshot())
}
