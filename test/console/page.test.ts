import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { worldApp } from '../app.js'

const FILES = fileURLToPath(new URL('../../page/', import.meta.url))
const read = (file: string) => readFileSync(FILES + file, 'utf8')
const BUNDLE_BYTES_MAX = 400_000

const { app } = await worldApp(t)

t.test('the page is its own files and nothing else: nothing inline, nothing from elsewhere, no cookie', async t => {
  const page = await app.inject({ url: '/console' })
  const named = [...page.body.matchAll(/(?:src|href)="(?!#|docs"|console")([^"]+)"/g)].map(
    ([, address]) => `/${address}`,
  )
  t.strictSame(named.sort(), ['/console/icon.svg', '/console/main.css', '/console/main.js'])
  for (const url of ['/console', '/console/reader.js', ...named]) {
    const { statusCode, headers } = await app.inject({ url, headers: { cookie: 'a=b' } })
    t.equal(statusCode, 200, url)
    const policy = String(headers['content-security-policy'])
    t.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self'( 'nonce-[\w+/=]{24}')?; img-src 'self'; /)
    t.match(policy, /require-trusted-types-for 'script'; trusted-types worker$/)
    t.notMatch(policy, /unsafe|https?:|data:/)
    t.notOk(Object.hasOwn(headers, 'set-cookie'))
    t.match(headers, { 'cache-control': 'no-store', 'x-frame-options': 'DENY', 'referrer-policy': 'no-referrer' })
    t.equal((await app.inject({ method: 'HEAD', url })).statusCode, 200)
  }
  t.notMatch(page.body, /<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)/, 'nothing is inline')
  const nonces = [page, await app.inject({ url: '/console' })].map(({ body, headers }) => {
    const [, nonce = ''] = /nonce="([^"]+)"/.exec(body) ?? []
    t.ok(String(headers['content-security-policy']).includes(`'nonce-${nonce}'`))
    return nonce
  })
  t.not(nonces[0], nonces[1], 'each answer has a nonce of its own')
  t.notMatch(read('main.css'), /https?:\/\/|@import|url\(/, 'nothing is loaded from elsewhere')
  const bytes = ['page.html', 'main.js', 'reader.js', 'main.css'].map(file => gzipSync(read(file)).length)
  t.ok(bytes.reduce((sum, each) => sum + each) <= BUNDLE_BYTES_MAX, `${bytes} bytes, compressed`)
})

t.test('303: a browser is led from / to the page, 302: everybody else to the documentation as before', async t => {
  const led = async (url: string, accept?: string) => {
    const { statusCode, headers } = await app.inject({ url, ...(accept && { headers: { accept } }) })
    return [statusCode, headers.location]
  }
  t.strictSame(await led('/', 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8'), [303, 'console'])
  for (const accept of [undefined, '*/*', 'application/json']) t.strictSame(await led('/', accept), [302, 'docs'])
  t.strictSame(await led('/console/'), [302, '../console'])
})
