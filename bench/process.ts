import { spawn, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export interface Service {
  port: number
  pid: number
}

let port = 20_000 + (process.pid % 10_000) // below the ports that the system gives to clients

/** Starts a built checkout like `npm start`, without rate limits, and waits until the service is ready. */
export async function startService(checkout: string, env: NodeJS.ProcessEnv): Promise<Service> {
  // Only version 2.1, which `--against` can measure, has the last two settings.
  const unlimited = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0', TRANSFER_BYTES_MAX: '268435456' }
  const command = packageOf(checkout).scripts.start.replace(/^exec /, '')
  return await startProcess(checkout, command, { HOST: '127.0.0.1', LOG_LEVEL: 'warn', ...unlimited, ...env })
}

/** Runs a command that serves on `PORT`, and waits until the service is ready. Kills the command when this process exits. */
export async function startProcess(cwd: string, command: string, env: NodeJS.ProcessEnv): Promise<Service> {
  port += 1
  const stdio = ['ignore', 'ignore', 'inherit'] as const
  const child = spawn('sh', ['-c', `exec ${command}`], { cwd, stdio: [...stdio], env: { PORT: String(port), ...env } })
  process.on('exit', () => child.kill())
  for (let tries = 0; tries < 200; tries++) {
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined)
    if (ready?.ok) return { port, pid: child.pid ?? 0 }
    await sleep(100)
  }
  throw new Error(`${command} in ${cwd} is not ready`)
}

export function packageOf(checkout: string): { version: string; scripts: { start: string } } {
  return JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8'))
}

export function migrate(checkout: string, env: NodeJS.ProcessEnv): void {
  const { status, stderr } = spawnSync(process.execPath, [join(checkout, 'build/src/cli.js'), 'migrate'], { env })
  if (status !== 0) throw new Error(`migrate of ${checkout}: ${stderr}`)
}

/** Returns the fields of /proc/pid/stat, starting with `state` (see proc_pid_stat(5)), or an empty list if the process has ended. */
function statOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number)
  } catch {
    return []
  }
}

export function parentOf(pid: number): number {
  return statOf(pid)[1] ?? 0
}

/** Returns the processor time of a process in ms. `family` adds the time of its running and ended children. */
export function processorMs(pid: number, family = false): number {
  const ticks = (stat: number[], end: number) => stat.slice(11, end).reduce((sum, each) => sum + each, 0)
  const pids = family ? readdirSync('/proc').filter(name => /^\d/.test(name)) : []
  const children = pids
    .map(Number)
    .map(statOf)
    .filter(stat => stat[1] === pid)
  const total = children.reduce((sum, stat) => sum + ticks(stat, 13), ticks(statOf(pid), family ? 15 : 13))
  return total * 10 // Linux counts 100 ticks per second
}

export function residentMib(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
}
