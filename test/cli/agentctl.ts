import { type ChildProcess, spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { run } from '../../src/admin/commands/run.js'
import { ended } from '../faults/cluster.js'
import { TEST_SECRET_KEYS } from '../world.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

/** The result of a command line. `status` is null if a signal ended the process. */
export interface Answer {
  status: number | null
  stdout: string
  stderr: string
}

export interface CommandLine {
  /** The value of `DATABASE_URL`. */
  url: string
  args: readonly string[]
  env?: Record<string, string>
  /** The text for standard input. */
  input?: string
}

/** Runs a command line in this process, or in its own process if it has standard input. */
export async function agentctl(line: CommandLine): Promise<Answer> {
  if (line.input !== undefined) return await startAgentctl(line).answer
  const answer = { status: 0, stdout: '', stderr: '' }
  const print = (text: string) => {
    answer.stdout += `${text}\n`
  }
  const remark = (text: string) => {
    answer.stderr += `${text}\n`
  }
  answer.status = await run(line.args, environmentOf(line), { print, remark })
  return answer
}

/** Starts a command line in its own process. */
export function startAgentctl(line: CommandLine): { child: ChildProcess; answer: Promise<Answer> } {
  const child = spawn(process.execPath, [CLI, ...line.args], { env: environmentOf(line) })
  child.stdin.end(line.input)
  const answer = Promise.all([text(child.stdout), text(child.stderr), ended(child)])
  return { child, answer: answer.then(([stdout, stderr]) => ({ status: child.exitCode, stdout, stderr })) }
}

function environmentOf({ url, env }: CommandLine): Record<string, string> {
  return { PATH: process.env.PATH ?? '', DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, ...env }
}
