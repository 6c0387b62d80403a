import { isObject } from './references.js'
import { hasOpenEnd, originsOfServer } from './servers.js'

/**
 * The origins to which calls by a checked definition may go: those of the document's servers, of its paths and of their
 * operations. Wherever a list of servers stands it counts, as a reference may lead there. What calls a tool reads the document's own.
 *
 * A client joins server and path as texts: behind a server that ends with its host, a path that does not begin with a slash
 * goes on with the host (`https://good.example.com` and `@evil.example.net/a`). Each such path, and each such server, is an
 * origin of its own.
 */
export function originsOf(definition: unknown): Set<string> {
  const origins = new Set<string>()
  const open = new Set<string>()
  const stack: unknown[] = [definition]
  while (stack.length > 0) {
    const node = stack.pop()
    if (typeof node !== 'object' || node === null) continue
    for (const key of Array.isArray(node) ? node.keys() : Object.keys(node)) {
      const value = (node as Record<string | number, unknown>)[key]
      if (typeof value === 'object' && value !== null) stack.push(value)
    }
    if (!isObject(node) || !Array.isArray(node.servers)) continue
    for (const server of node.servers) {
      for (const origin of originsOfServer(server)) origins.add(origin)
      if (hasOpenEnd(server)) open.add(server.url)
    }
  }
  const paths = isObject(definition) && isObject(definition.paths) ? Object.keys(definition.paths) : []
  const [first] = open
  let goingOn = 0
  for (const path of paths) {
    if (first === undefined || path === '/' || /^\/(?![/\\])/.test(path)) continue
    goingOn++
    origins.add(`${first}${path}`)
  }
  if (goingOn === 0) return origins
  for (const url of open) {
    origins.add(`${url} and paths that go on with it`)
  }
  return origins
}
