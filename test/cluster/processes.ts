import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { type Account, identity, serverEnvironment } from '../../src/db/embedded/account.js'
import { ended, endWithUs, signal } from '../faults/cluster.js'

/** A program of the cluster: in a session of its own, so that no signal reaches it that was not meant for it. */
export class Daemon {
  readonly #child: ChildProcess

  private constructor(child: ChildProcess) {
    this.#child = child
  }

  /** Starts the program as an account, `undefined` for this one; what it writes goes to the file `log`. */
  static start(command: string, args: readonly string[], log: string, account?: Account): Daemon {
    const child = spawn('/bin/sh', ['-c', 'exec "$0" "$@" >>"$LOG" 2>&1', command, ...args], {
      ...(account !== undefined && identity(account)),
      cwd: '/',
      env: { ...serverEnvironment(), LOG: log },
      stdio: 'ignore',
      detached: true,
    })
    endWithUs(child)
    return new Daemon(child)
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  get isRunning(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** Ends it, and resolves when it is gone. */
  async end(how: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    if (!this.isRunning) return
    signal(this.pid, how)
    // A stopped process takes no signal but these two.
    signal(this.pid, 'SIGCONT')
    await ended(this.#child)
  }
}

/** The process and all below it, parents first. */
export function treeOf(root: number): number[] {
  const parents = new Map<number, number>()
  for (const pid of readdirSync('/proc').map(Number).filter(Number.isInteger)) {
    const parent = parentOf(pid)
    if (parent !== undefined) parents.set(pid, parent)
  }
  if (!parents.has(root)) return []
  const tree = [root]
  for (const above of tree) {
    for (const [pid, parent] of parents) if (parent === above) tree.push(pid)
  }
  return tree
}

function parentOf(pid: number): number | undefined {
  try {
    // The name in parentheses may hold anything; state and parent follow its end.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  } catch {
    return undefined // ended meanwhile
  }
}
