import { BlockList, isIPv6, type Server, type Socket } from 'node:net'
import rateLimit from '@fastify/rate-limit'
import type { FastifyBaseLogger } from 'fastify'
import { plainAddress } from '../auth/client-address.js'

/** The settings that bound open connections. */
export const CONNECTION_LIMITS = ['CONNECTIONS_MAX', 'CONNECTIONS_PER_ADDRESS_MAX'] as const
export type ConnectionLimitName = (typeof CONNECTION_LIMITS)[number]

/** Learns of each connection that is refused, and of the address that it came from. */
export type OnRefusedConnection = (limit: ConnectionLimitName, address: string) => void

export interface ConnectionLimit {
  /** Open connections of one address, where IPv6 counts by /64. */
  perAddressMax: number
  /** Addresses, networks and names of networks as `TRUST_PROXY` takes them: the connections of many clients come from there. */
  trustedProxies: readonly string[]
  onRefused: OnRefusedConnection
}

/**
 * Closes at once what one address opens beyond its share, so that the room of all others is not taken by idle sockets. Node does
 * it beyond the server's `maxConnections`.
 */
export function limitConnections(server: Server, { perAddressMax, trustedProxies, onRefused }: ConnectionLimit): void {
  const networks = networksOf(trustedProxies)
  const isTrusted = (address: string) =>
    trustedProxies.length > 0 && networks.check(address, isIPv6(address) ? 'ipv6' : 'ipv4') // an object for each look
  const open = new Map<string, number>()
  server.on('drop', refused => onRefused('CONNECTIONS_MAX', plainAddress(refused?.remoteAddress ?? '')))
  server.on('connection', (socket: Socket) => {
    const address = plainAddress(socket.remoteAddress ?? '')
    if (address === '' || isTrusted(address)) return
    const network = rateLimit.normalizeIP(address, 64)
    const count = (open.get(network) ?? 0) + 1
    if (count > perAddressMax) {
      onRefused('CONNECTIONS_PER_ADDRESS_MAX', address)
      socket.destroy()
      return
    }
    open.set(network, count)
    socket.once('close', () => {
      const left = (open.get(network) ?? 0) - 1
      if (left > 0) open.set(network, left)
      else open.delete(network)
    })
  })
}

/** Of each limit the log has at most one line in this time. */
const LOG_INTERVAL_MS = 10_000

/**
 * Tells the log of refused connections: the first at once, of what follows how many there were, also where no more come. Whoever is
 * refused gets no answer, so nothing else says it.
 */
export function logRefusedConnections(
  log: FastifyBaseLogger,
  max: Readonly<Record<ConnectionLimitName, number>>,
): OnRefusedConnection {
  const untold = { CONNECTIONS_MAX: 0, CONNECTIONS_PER_ADDRESS_MAX: 0 }
  const resting = new Set<ConnectionLimitName>()
  const clients = { CONNECTIONS_MAX: '', CONNECTIONS_PER_ADDRESS_MAX: '' }
  const tell = (limit: ConnectionLimitName) => {
    log.warn({ limit, max: max[limit], client: clients[limit], refused: untold[limit] }, 'connections are refused')
    untold[limit] = 0
    resting.add(limit)
    const timer = setTimeout(() => {
      resting.delete(limit)
      if (untold[limit] > 0) tell(limit)
    }, LOG_INTERVAL_MS)
    timer.unref()
  }
  return (limit, address) => {
    untold[limit]++
    clients[limit] = address
    if (!resting.has(limit)) tell(limit)
  }
}

/** What the names stand for that `TRUST_PROXY` takes beside addresses. */
const NAMED_NETWORKS: Readonly<Record<string, readonly string[]>> = {
  loopback: ['127.0.0.0/8', '::1/128'],
  linklocal: ['169.254.0.0/16', 'fe80::/10'],
  uniquelocal: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
}

function networksOf(proxies: readonly string[]): BlockList {
  const list = new BlockList()
  for (const network of proxies.flatMap(proxy => NAMED_NETWORKS[proxy] ?? [proxy])) {
    const [address = '', bits] = network.split('/')
    const family = isIPv6(address) ? 'ipv6' : 'ipv4'
    if (bits === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(bits), family)
  }
  return list
}
