import { createHash } from 'node:crypto'
import { lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Config } from '../config.js'
import { metricsUrl } from './failures.js'

/*
 * Where the services of this user run on this machine: each writes a small file while it runs, so that `agentctl status` finds it
 * on whatever port it listens.
 */

type Environment = Readonly<Record<string, string | undefined>>

interface Announcement {
  metrics_url: string
  /** What the metrics ask for; null where they are open. Only the service's own user can read the file. */
  metrics_token: string | null
  database: string
}

/**
 * Says where this process shows its metrics, until the answered function is called. `port` is that of the metrics.
 * A service that cannot say so runs all the same.
 */
export function announceService(config: Config, port: number, env: Environment): () => void {
  const url = metricsUrl({ ...config, server: { ...config.server, metricsPort: port } })
  const path = join(folderOf(env), `${process.pid}.json`)
  const content: Announcement = {
    metrics_url: url ?? '',
    metrics_token: config.server.metricsToken ?? null,
    database: databaseOf(config),
  }
  try {
    mkdirSync(folderOf(env), { recursive: true, mode: 0o700 })
    if (isOwn(folderOf(env))) writeFileSync(path, JSON.stringify(content), { mode: 0o600 })
  } catch {
    // There is no such folder, or it is full: status asks at PORT then.
  }
  return () => rmSync(path, { force: true })
}

/** Where metrics are shown, and the token that is asked for there. */
export interface MetricsPlace {
  url: string
  token: string | undefined
}

/**
 * The metrics to ask: where PORT or METRICS_PORT say, else those of the running services of the same database, else at the default
 * port. A running service tells its own token.
 */
export function runningServices(config: Config, env: Environment): MetricsPlace[] {
  const configured = metricsUrl(config)
  const isNamed = Boolean(env.PORT || env.METRICS_PORT)
  const same = announcements(env)
    .filter(({ database, metrics_url }) => (isNamed ? metrics_url === configured : database === databaseOf(config)))
    .map(({ metrics_url, metrics_token }) => ({ url: metrics_url, token: metrics_token ?? undefined }))
  if (same.length > 0) return same
  return configured === undefined ? [] : [{ url: configured, token: config.server.metricsToken }]
}

function announcements(env: Environment): Announcement[] {
  const folder = folderOf(env)
  try {
    if (!isOwn(folder)) return []
    return readdirSync(folder).flatMap(name => {
      const path = join(folder, name)
      if (isAlive(Number.parseInt(name, 10))) return [JSON.parse(readFileSync(path, 'utf8')) as Announcement] // we wrote it
      rmSync(path, { force: true }) // it was killed
      return []
    })
  } catch {
    return [] // there is none
  }
}

function folderOf(env: Environment): string {
  return join(env.XDG_RUNTIME_DIR || tmpdir(), `agent-tool-management-${process.getuid?.() ?? 0}`)
}

/** Everybody may make folders in the system's temporary one: only our own is believed. */
function isOwn(folder: string): boolean {
  const stats = lstatSync(folder)
  return stats.isDirectory() && stats.uid === (process.getuid?.() ?? stats.uid)
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Tells databases apart without naming them. */
function databaseOf({ database }: Config): string {
  return createHash('sha256')
    .update(database.url ?? resolve(database.dataDir))
    .digest('hex')
}
