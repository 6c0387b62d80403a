import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { userInfo } from 'node:os'

/** The embedded PostgreSQL cannot run here. The message is one sentence: why, and what helps. */
export class EmbeddedUnavailable extends Error {
  constructor(
    readonly reason: string,
    options?: ErrorOptions,
    advice = 'set DATABASE_URL to use a PostgreSQL server of your own',
  ) {
    super(`the embedded PostgreSQL cannot run: ${reason}; ${advice}`, options)
    this.name = 'EmbeddedUnavailable'
  }
}

/** There is no space for the embedded PostgreSQL: it runs again once there is, and nothing is to be configured. */
export class EmbeddedDiskFull extends EmbeddedUnavailable {
  constructor(path: string, options?: ErrorOptions) {
    super(`the disk of ${path} is full`, options, 'make space there and start again')
    this.name = 'EmbeddedDiskFull'
  }
}

/** A user of this machine, as the password file knows it. */
export interface Account {
  name: string
  uid: number
  gid: number
}

/** What a command of another account wrote and how it ended; `failed` is why it could not be started at all. */
export interface CommandResult {
  code: number
  stdout: string
  stderr: string
  failed?: string
}

const COMMAND_TIMEOUT_MS = 120_000

export function isRoot(): boolean {
  return process.geteuid?.() === 0
}

/**
 * Who runs the server of a new cluster: this user, or, because PostgreSQL refuses to run as root, `postgres` or else `nobody`.
 * @throws EmbeddedUnavailable when the password file has no such user
 */
export function preferredAccount(): Account {
  if (!isRoot()) return ownAccount()
  const accounts = passwordFile()
  const account = accounts.find(({ name }) => name === 'postgres') ?? accounts.find(({ name }) => name === 'nobody')
  if (!account)
    throw new EmbeddedUnavailable('it must not run as root, and there is neither a user postgres nor a user nobody')
  return account
}

/**
 * The account of a user id, for data that exists already: its owner keeps running it.
 * @throws EmbeddedUnavailable when the password file has no such user
 */
export function accountOf(uid: number): Account {
  const account = passwordFile().find(entry => entry.uid === uid)
  if (!account) throw new EmbeddedUnavailable(`the user id ${uid} has no entry in the password file`)
  return account
}

/** The identity options of `node:child_process` that make a child run as this account. */
export function identity(account: Account): { uid?: number; gid?: number } {
  return account.uid === process.geteuid?.() ? {} : { uid: account.uid, gid: account.gid }
}

/**
 * The environment of every process of the cluster. Nothing of ours is handed on: the environment of the application holds
 * secrets, and variables such as PGPORT would change what the server does.
 */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', TZ } = process.env
  return { PATH, LC_ALL: 'C.UTF-8', ...(TZ === undefined ? {} : { TZ }) }
}

/** Runs a command as an account. Never rejects: the caller decides what a failure means. */
export function runAs(account: Account, command: string, args: string[]): Promise<CommandResult> {
  const options = { ...identity(account), cwd: '/', env: serverEnvironment(), timeout: COMMAND_TIMEOUT_MS }
  return new Promise(resolve => {
    try {
      execFile(command, args, options, (error, stdout, stderr) => {
        if (!error) return resolve({ code: 0, stdout, stderr })
        if (typeof error.code === 'number') return resolve({ code: error.code, stdout, stderr })
        resolve({ code: -1, stdout, stderr, failed: String(error.code ?? error.signal ?? error.message) })
      })
    } catch (error) {
      // Node throws here, instead of calling back, when the process may not change its user.
      resolve({ code: -1, stdout: '', stderr: '', failed: errorCode(error) ?? String(error) })
    }
  })
}

/** The `code` of a system error (`ENOENT`), if the value has one. */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

function ownAccount(): Account {
  try {
    const { username, uid, gid } = userInfo()
    return { name: username, uid, gid }
  } catch (error) {
    throw new EmbeddedUnavailable(`the user id ${process.geteuid?.()} has no entry in the password file`, {
      cause: error,
    })
  }
}

function passwordFile(): Account[] {
  const lines = readFileSync('/etc/passwd', 'utf8').split('\n')
  return lines.flatMap(line => {
    const [, name = '', uid, gid] = /^([^:]+):[^:]*:(\d+):(\d+):/.exec(line) ?? []
    return name === '' ? [] : [{ name, uid: Number(uid), gid: Number(gid) }]
  })
}
