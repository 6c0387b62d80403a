/** The server of a connection, as it identified itself at the start. */
export interface DatabaseServer {
  /** The result of `version()`. */
  version: string
  /** False for a standby and a server with read-only transactions. */
  acceptsWrites: boolean
  /** The process id that the start of the connection reported, of the server or of a pooler. */
  processId: number | undefined
  /** False through a pooler, which has its own server connections. */
  isDirect: boolean
  /** The system identifier of the cluster, shared by its standbys. Null if the server does not report it. */
  system: string | null
  /** Each promotion raises it: of two servers that accept writes, the higher one was promoted later. */
  timeline: number
  /** The start time of the server in seconds since 1970. It distinguishes the servers of one cluster. */
  startedAt: number
  /** The server's own address and port; null on a Unix socket. */
  place: string | null
}

/** Describes the server in one line for logs: version, address, and what prevents settling an unconfirmed commit. */
export function describeServer({ version, isDirect, system, place }: DatabaseServer): string {
  const [engine = version] = version.split(' on ')
  const name = place === null ? engine : `${engine} at ${place.replace(/\/\d+ /, ' port ')}`
  if (!isDirect) return `${name}, through a pooler`
  return system === null ? `${name}, which does not tell its past` : name
}
