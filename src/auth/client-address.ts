import { BlockList, isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'

/** The client's address: the one reported by trusted proxies if it is valid, else the peer's. IPv4 addresses are plain. */
export function clientAddressOf(request: Pick<FastifyRequest, 'ip' | 'socket'>): string {
  const said = plainAddress(request.ip)
  return isIP(said) !== 0 ? said : plainAddress(request.socket.remoteAddress ?? '')
}

/** Removes port and IPv4 mapping: `::ffff:192.0.2.1`, `192.0.2.1:443`, `[2001:db8::1]:443`. Other texts are unchanged. */
export function plainAddress(text: string): string {
  const address = /^\[([^\]]*)\](?::\d+)?$/.exec(text)?.[1] ?? text
  return /^(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)(?::\d+)?$/i.exec(address)?.[1] ?? address
}

/** The names of networks that TRUST_PROXY accepts. */
export const NAMED_NETWORKS: Readonly<Record<string, readonly string[]>> = {
  loopback: ['127.0.0.0/8', '::1'],
  linklocal: ['169.254.0.0/16', 'fe80::/10'],
  uniquelocal: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
}

/** Returns a test for addresses of these proxies, which are addresses, networks or names of networks. A tested address may have a port. */
export function trustIn(proxies: readonly string[]): (address: string) => boolean {
  const trusted = new BlockList()
  for (const network of proxies.flatMap(proxy => NAMED_NETWORKS[proxy] ?? [proxy])) {
    const [address = '', bits] = network.split('/')
    trusted.addSubnet(address, Number(bits ?? (isIP(address) === 4 ? 32 : 128)), familyOf(address))
  }
  return text => {
    const address = plainAddress(text)
    return isIP(address) !== 0 && trusted.check(address, familyOf(address))
  }
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIP(address) === 4 ? 'ipv4' : 'ipv6'
}
