import { existsSync } from 'node:fs'
import { canMount } from '../faults/cluster.js'

/** What Debian's packages bring, by the name of the package. */
const PROGRAMS = {
  patroni: '/usr/bin/patroni',
  'etcd-server': '/usr/bin/etcd',
  haproxy: '/usr/sbin/haproxy',
  pgbouncer: '/usr/sbin/pgbouncer',
  'postgresql-15': '/usr/lib/postgresql/15/bin/postgres',
} as const

export const PATRONI = PROGRAMS.patroni
export const ETCD = PROGRAMS['etcd-server']
export const HAPROXY = PROGRAMS.haproxy
export const PGBOUNCER = PROGRAMS.pgbouncer

/** Why the cluster cannot run on this machine, a sentence each; empty when it can. */
export function missing(): string[] {
  const packages = Object.entries(PROGRAMS).flatMap(([name, path]) => (existsSync(path) ? [] : [name]))
  return [
    ...(packages.length > 0 ? [`these packages of Debian are missing: ${packages.join(' ')}`] : []),
    ...(process.geteuid?.() === 0 ? [] : ['only root can start the nodes as another user']),
    ...(process.geteuid?.() !== 0 || canMount() ? [] : ['file systems cannot be mounted here']),
  ]
}
