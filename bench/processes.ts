import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ControlPorts } from './controls.js'
import type { ServiceCounts } from './service.js'

/** A process of the benchmark: the service, or the controls beside it. */
export interface Running<Ports> {
  pid: number
  ports: Ports
  /** From the start of the process to the first request that it can serve. */
  startMs: number
  counts(): Promise<ServiceCounts>
  end(): Promise<void>
}

/** This program's own checkout. */
const OWN_CHECKOUT = fileURLToPath(new URL('../..', import.meta.url))

/** Starts the service that a checkout has built on a free port as a process of its own: limits off, logging warnings only. */
export function startService(url: string, keys: string, checkout = OWN_CHECKOUT): Promise<Running<{ port: number }>> {
  return start(checkout, 'service.js', {
    DATABASE_URL: url,
    SECRET_KEYS: keys,
    PORT: '0',
    HOST: '127.0.0.1',
    LOG_LEVEL: 'warn',
    RATE_LIMIT_PER_MINUTE: '0',
    HEADER_TRIALS_PER_HOUR: '0',
    FAILED_AUTH_LIMIT_PER_MINUTE: '0',
    RATE_LIMIT_BYTES_PER_MINUTE: '0',
  })
}

/** Starts the three controls, each on a port of its own. */
export function startControls(url: string): Promise<Running<ControlPorts>> {
  return start(OWN_CHECKOUT, 'controls.js', { DATABASE_URL: url })
}

async function start<Ports>(checkout: string, file: string, env: Record<string, string>): Promise<Running<Ports>> {
  const began = performance.now()
  const path = join(builtBench(checkout), file)
  const { BENCH_NODE_OPTIONS, PATH } = process.env
  const usual = file === 'service.js' ? nodeOfStart(checkout) : { env: {}, options: [] }
  const execArgv = BENCH_NODE_OPTIONS === undefined ? usual.options : wordsOf(BENCH_NODE_OPTIONS)
  const child = fork(path, { env: { ...(PATH === undefined ? {} : { PATH }), ...usual.env, ...env }, execArgv })
  const ports = (await answer(child)) as Ports // the child sends them when it listens
  return {
    pid: child.pid ?? 0,
    ports,
    startMs: performance.now() - began,
    counts: async () => {
      child.send('counts')
      return (await answer(child)) as ServiceCounts // the child answers a question with this alone
    },
    end: async () => {
      const ended = once(child, 'exit')
      child.send('end')
      await ended
    },
  }
}

/** Where a checkout builds its benchmark. */
export function builtBench(checkout: string): string {
  return join(checkout, 'build/bench')
}

/** The environment and the options with which `npm start` runs node. */
export function nodeOfStart(checkout = OWN_CHECKOUT): { env: Record<string, string>; options: string[] } {
  const { scripts } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as { scripts: { start: string } } // our own
  const [, env = '', options = ''] =
    /^(?:exec )?(?:env (.*) )?node (.*)build\/src\/server\.js$/.exec(scripts.start) ?? []
  const pairs = wordsOf(env).map(word => word.split('=') as [string, string]) // a name and a value each
  return { env: Object.fromEntries(pairs), options: wordsOf(options) }
}

async function answer(child: ChildProcess): Promise<unknown> {
  return await new Promise((resolve, reject) => {
    const ended = (code: number | null) => reject(new Error(`a process of the benchmark ended with ${code}`))
    child.once('exit', ended)
    child.once('message', message => {
      child.off('exit', ended)
      resolve(message)
    })
  })
}

function wordsOf(text: string): string[] {
  return text.split(' ').filter(word => word !== '')
}
