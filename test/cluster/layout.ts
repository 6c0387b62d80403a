import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The ports of a run, all on loopback addresses. */
export const POSTGRES_PORT = 24_432
export const PATRONI_PORT = 24_008
const ETCD_CLIENT_PORT = 24_379
const ETCD_PEER_PORT = 24_380
const ENTRY_PORT = 24_500
const POOLER_PORT = 24_600
const FIRST_INSTANCE_PORT = 24_700
const FIRST_SERVICE_ENTRY_PORT = 24_800

export const NODES = [1, 2, 3] as const
export type NodeNumber = (typeof NODES)[number]

/** How an instance of the service reaches PostgreSQL. */
export const WAYS = ['host_list', 'haproxy', 'pgbouncer'] as const
export type Way = (typeof WAYS)[number]

/** Two instances for each way in. */
export const INSTANCES_PER_WAY = 2

/** Each node has an address of its own, as on three machines: all use the same ports. */
export function addressOf(node: NodeNumber): string {
  return `127.0.24.${node}`
}

export function instancePort(way: Way, instance: number): number {
  return FIRST_INSTANCE_PORT + WAYS.indexOf(way) * INSTANCES_PER_WAY + instance
}

/** `METRICS_PORT` of the instance at that port, where HAProxy asks whether it is ready. */
export function checkPort(ofInstance: number): number {
  return ofInstance + 50
}

export function serviceEntryPort(way: Way): number {
  return FIRST_SERVICE_ENTRY_PORT + WAYS.indexOf(way)
}

export interface Passwords {
  superuser: string
  agents: string
  patroniApi: string
}

/** Fills in the templates of `ops/cluster`, as an operator does with envsubst. */
export class Templates {
  readonly passwords: Passwords
  readonly #common: Readonly<Record<string, string>>

  constructor(folder: string) {
    this.passwords = { superuser: password(), agents: password(), patroniApi: password() }
    this.#common = {
      ADDRESS_1: addressOf(1),
      ADDRESS_2: addressOf(2),
      ADDRESS_3: addressOf(3),
      CLIENT_NETWORK: '127.0.0.0/8',
      NODE_NETWORK: '127.0.0.0/8',
      POSTGRES_PORT: String(POSTGRES_PORT),
      PATRONI_PORT: String(PATRONI_PORT),
      ETCD_CLIENT_PORT: String(ETCD_CLIENT_PORT),
      ETCD_PEER_PORT: String(ETCD_PEER_PORT),
      POSTGRES_BIN_DIR: '/usr/lib/postgresql/15/bin',
      SUPERUSER_PASSWORD: this.passwords.superuser,
      REPLICATION_PASSWORD: password(),
      REWIND_PASSWORD: password(),
      PATRONI_API_PASSWORD: this.passwords.patroniApi,
      AGENTS_PASSWORD: this.passwords.agents,
      ENTRY_ADDRESS: '127.0.0.1',
      ENTRY_PORT: String(ENTRY_PORT),
      POOLER_ADDRESS: '127.0.0.1',
      POOLER_PORT: String(POOLER_PORT),
      POOLER_USERS_FILE: `${folder}/pgbouncer-users.txt`,
      POOLER_LOG_FILE: `${folder}/pgbouncer.log`,
      SERVICE_ENTRY_ADDRESS: '127.0.0.1',
    }
  }

  /** Writes the template `name` with its placeholders filled in to `target`, readable to all: the folder is not. */
  write(name: string, target: string, own: Readonly<Record<string, string>> = {}): void {
    const values = { ...this.#common, ...own }
    const template = readFileSync(fileURLToPath(new URL(`../../../ops/cluster/${name}`, import.meta.url)), 'utf8')
    const text = template.replace(/\$\{(\w+)\}/g, (_, key: string) => {
      const value = values[key]
      if (value === undefined) throw new Error(`ops/cluster/${name}: no value for ${key}`)
      return value
    })
    writeFileSync(target, text)
  }

  /** The `DATABASE_URL` of a way in. */
  url(way: Way): string {
    const user = `postgresql://agents:${this.passwords.agents}`
    const hosts = NODES.map(node => `${addressOf(node)}:${POSTGRES_PORT}`).join(',')
    switch (way) {
      case 'host_list':
        return `${user}@${hosts}/agents?target_session_attrs=read-write`
      case 'haproxy':
        return `${user}@127.0.0.1:${ENTRY_PORT}/agents?target_session_attrs=read-write`
      case 'pgbouncer':
        return `${user}@127.0.0.1:${POOLER_PORT}/agents`
    }
  }
}

function password(): string {
  return randomBytes(12).toString('hex')
}
