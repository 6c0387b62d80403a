import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'

/** The client's address: what trusted proxies say, if it is an address, else the peer. IPv4 stays in its own form. */
export function clientAddressOf(request: Pick<FastifyRequest, 'ip' | 'socket'>): string {
  const said = plainAddress(request.ip)
  return isIP(said) !== 0 ? said : plainAddress(request.socket.remoteAddress ?? '')
}

/** `::ffff:192.0.2.1` as `192.0.2.1`; everything else as it is. */
export function plainAddress(address: string): string {
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address
}
