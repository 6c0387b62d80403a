/** The server at the other end of a connection, as it said of itself when the connection was made. */
export interface DatabaseServer {
  /** What `version()` says, for people and logs. */
  version: string
  /** Neither a standby nor a server whose transactions are read-only. */
  acceptsWrites: boolean
  /** The process of this connection as its start said, on the server or on a pooler. */
  processId: number | undefined
  /** False behind a pooler, which has server connections of its own. */
  isDirect: boolean
  /** Of the cluster: standbys and a promoted server have the same. Null where the server does not tell its past. */
  system: string | null
  /** Each promotion begins a new one: of two servers that accept writes, the one with the higher number was promoted later. */
  timeline: number
  /** When the server was started, in seconds since 1970: tells two servers of one cluster apart. */
  startedAt: number
  /** Its own address and port as it sees them; null on a Unix socket. */
  place: string | null
}

/** The server for people and logs: its version, its own address, and what keeps an update in doubt from being settled. */
export function describeServer({ version, isDirect, system, place }: DatabaseServer): string {
  const [engine = version] = version.split(' on ')
  const name = place === null ? engine : `${engine} at ${place.replace(/\/\d+ /, ' port ')}`
  if (!isDirect) return `${name}, through a pooler`
  return system === null ? `${name}, which does not tell its past` : name
}
