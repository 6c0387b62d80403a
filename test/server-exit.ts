import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const SERVER = fileURLToPath(new URL('../src/server.js', import.meta.url))

/** Starts the service's process on a free port with the environment `env`, and waits for its end. */
export async function serverExit(env: Record<string, string>): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [SERVER], { env: { PORT: '0', ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', chunk => (output += String(chunk)))
  const stuck = setTimeout(() => child.kill('SIGKILL'), 120_000)
  const code = await new Promise<number | null>(resolve => child.once('close', resolve))
  clearTimeout(stuck)
  return { code, output }
}
