import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'

/**
 * The address of who sent a request: what the trusted proxies say of it, else the peer of the connection. A proxy that
 * hands on what a client wrote may name anything; what is not an address is not believed. IPv4 stays in its own form when the
 * socket speaks both.
 */
export function clientAddressOf(request: Pick<FastifyRequest, 'ip' | 'socket'>): string {
  const said = plainAddress(request.ip)
  return isIP(said) !== 0 ? said : plainAddress(request.socket.remoteAddress ?? '')
}

/** `::ffff:192.0.2.1` as `192.0.2.1`; everything else as it is. */
export function plainAddress(address: string): string {
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address
}
