import t from 'tap'
import { docsPage, openOperations, send, skip } from './docs-page.js'
import { storedAgent } from './update-persona/stored-agent.js'

t.test(
  '200: the prefilled requests of /docs succeed on the demo, with a token pasted in either form',
  { skip },
  async t => {
    const { database, tokens, origin, page } = await docsPage(t)
    await page.goTo(`${origin}/`) // leads to the page

    await page.type('#token', `Bearer ${tokens.admin}`)
    await page.click('#use:enabled')
    await openOperations(page)
    for (const operation of ['read_persona', 'update_persona', 'read_tool', 'update_custom_tool', 'validate_tool']) {
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
