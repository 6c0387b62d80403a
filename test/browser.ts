import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'

/** Debian's browser; where there is none, the tests that need one are skipped. */
export const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(path => existsSync(path))

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
  '--remote-debugging-pipe',
  // Whatever is not this machine is not there: the page must live without the network.
  '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
]

interface Message {
  id?: number
  sessionId?: string
  method?: string
  params?: { request?: { url: string } }
  result?: unknown
  error?: { message: string }
}

/** A headless browser with a profile of its own, driven by the DevTools protocol over a pipe, so that no WebSocket is needed. */
export class Browser {
  readonly #process: ChildProcess
  readonly #profile: string
  readonly #waiting = new Map<number, (message: Message) => void>()
  readonly #pages = new Map<string, Page>()
  #lastId = 0

  private constructor(browser: ChildProcess, profile: string) {
    this.#process = browser
    this.#profile = profile
    let rest = ''
    const answers = browser.stdio[4] as Readable // the fifth stream is a pipe from the browser: see `spawn`
    answers.setEncoding('utf8').on('data', (text: string) => {
      const messages = `${rest}${text}`.split('\0')
      rest = messages.pop() ?? ''
      for (const message of messages) this.#receive(JSON.parse(message) as Message) // the protocol's own shape
    })
  }

  /** Starts a browser with a new profile, which may have preferences. */
  static async start(executable: string, preferences: object = {}): Promise<Browser> {
    const profile = await mkdtemp(join(tmpdir(), 'browser-'))
    await mkdir(join(profile, 'Default'))
    await writeFile(join(profile, 'Default', 'Preferences'), JSON.stringify(preferences))
    const browser = spawn(executable, [...FLAGS, `--user-data-dir=${profile}`], {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    })
    return new Browser(browser, profile)
  }

  /** Opens an empty page, in a tab of its own. */
  async open(): Promise<Page> {
    const { targetId } = await this.send<{ targetId: string }>('Target.createTarget', { url: 'about:blank' })
    const attached = await this.send<{ sessionId: string }>('Target.attachToTarget', { targetId, flatten: true })
    const page = new Page(this, targetId, attached.sessionId)
    this.#pages.set(attached.sessionId, page)
    await this.send('Network.enable', {}, attached.sessionId)
    await this.send('Page.enable', {}, attached.sessionId)
    return page
  }

  async close(): Promise<void> {
    const ended = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await ended
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 })
  }

  /** Sends a command of the protocol, to a page when its session is given, and answers the result. */
  async send<Result>(method: string, params: object = {}, sessionId?: string): Promise<Result> {
    this.#lastId += 1
    const id = this.#lastId
    const answered = new Promise<Message>(resolve => this.#waiting.set(id, resolve))
    const commands = this.#process.stdio[3] as Writable // the fourth stream is a pipe to the browser: see `spawn`
    commands.write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    const { result, error } = await answered
    if (error) throw new Error(`${method}: ${error.message}`)
    return result as Result // the protocol's own shape
  }

  #receive({ id, method, params, ...message }: Message): void {
    if (id !== undefined) {
      this.#waiting.get(id)?.(message)
      this.#waiting.delete(id)
    }
    const url = method === 'Network.requestWillBeSent' ? params?.request?.url : undefined
    if (url !== undefined) this.#pages.get(message.sessionId ?? '')?.requests.push(url)
  }
}

/** One page of a browser. */
export class Page {
  /** The address of every request that the page made. */
  readonly requests: string[] = []
  readonly #browser: Browser
  readonly #target: string
  readonly #session: string

  constructor(browser: Browser, target: string, session: string) {
    this.#browser = browser
    this.#target = target
    this.#session = session
  }

  /** Shows the page as a window of that width, in CSS pixels, in that colour scheme. */
  async show({ width, scheme }: { width: number; scheme: 'light' | 'dark' }): Promise<void> {
    const metrics = { width, height: 812, deviceScaleFactor: 1, mobile: width < 600 }
    await this.#send('Emulation.setDeviceMetricsOverride', metrics)
    await this.#send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
  }

  /** What is seen now, as a PNG. */
  async screenshot(): Promise<Buffer> {
    const { data } = await this.#send<{ data: string }>('Page.captureScreenshot', { format: 'png' })
    return Buffer.from(data, 'base64')
  }

  /** Evaluates an expression in the page, waits for it if it is a promise, and answers its value. */
  async evaluate<Value>(expression: string): Promise<Value> {
    const { result, exceptionDetails } = await this.#send<{
      result: { value: Value }
      exceptionDetails?: { text: string }
    }>('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true })
    if (exceptionDetails !== undefined) throw new Error(`in the page: ${exceptionDetails.text}`)
    return result.value
  }

  async goTo(url: string): Promise<void> {
    await this.#send('Page.navigate', { url })
  }

  /** Evaluates an expression in the page until its value is truthy, and answers it. Throws after 30 s. */
  async until<Value>(expression: string): Promise<Value> {
    for (const start = performance.now(); performance.now() - start < 120_000; ) {
      const evaluated = await this.#send<{ result: { value?: Value } }>('Runtime.evaluate', {
        expression: `(() => { try { return ${expression} } catch { return false } })()`,
        returnByValue: true,
      }).catch((error: Error) => {
        if (/navigated or closed|context was destroyed/i.test(error.message)) return undefined // between two pages
        throw error
      })
      if (evaluated?.result.value) return evaluated.result.value
      await new Promise(resolve => setTimeout(resolve, 50))
    }
    throw new Error(`the page never came to: ${expression}`)
  }

  /** Waits for an element and clicks it. */
  async click(selector: string): Promise<void> {
    await this.until(`(document.querySelector(${JSON.stringify(selector)}).click(), true)`)
  }

  /** Waits for a field, types into it and leaves it, so that the page's own code notices. */
  async type(selector: string, text: string): Promise<void> {
    await this.until(`(() => {
      const field = document.querySelector(${JSON.stringify(selector)})
      field.focus()
      Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set.call(field, ${JSON.stringify(text)})
      field.dispatchEvent(new Event('input', { bubbles: true }))
      field.dispatchEvent(new Event('change', { bubbles: true }))
      field.blur()
      return true
    })()`)
  }

  async close(): Promise<void> {
    await this.#browser.send('Target.closeTarget', { targetId: this.#target })
  }

  async #send<Result>(method: string, params: object = {}): Promise<Result> {
    return await this.#browser.send(method, params, this.#session)
  }
}
