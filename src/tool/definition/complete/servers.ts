import type { Loc } from '../check/findings.js'
import { isObject, parsedUrl } from '../check/references.js'
import { unusableServer } from '../check/servers.js'
import type { EditedDocument } from './edits.js'
import { serversOf } from './swagger.js'

/** The repairs of the servers of a definition. `server` is the address that was given for it, if one was. */
export class ServerRepairs {
  constructor(
    private readonly document: EditedDocument,
    private readonly server: string | undefined,
  ) {}

  /** The first server, when it is relative and a better one is given. */
  resolveRelative(): void {
    const { server } = this
    const url = this.document.at(['servers', 0, 'url'])
    if (server === undefined || typeof url !== 'string' || url.includes('{') || /^[a-z][a-z0-9+.-]*:/i.test(url)) return
    const resolved = url === '' || url === '/' ? server : parsedUrl(url, server)?.href
    // Slashes of either kind may name another host, which is not relative then.
    if (resolved === undefined || new URL(resolved).host !== new URL(server).host) return
    this.document.set(['servers', 0, 'url'], resolved, 'server_resolved', 'calls need an absolute address')
  }

  /** Names a server in a document that has none, if one is found. */
  add(): void {
    const found = this.serverFound()
    if (found === undefined) return
    this.document.set(['servers'], [{ url: found.url }], 'server_added', `no server was named; this is ${found.origin}`)
  }

  /** A server that cannot be used is taken out; the last one of the document is replaced. */
  mend(path: Loc): void {
    const holder = path.slice(0, -1)
    const list = this.document.at(holder)
    if (!Array.isArray(list)) return
    const msg = 'the address cannot be used'
    if (list.length > 1) this.document.remove(path, 'server_removed', msg)
    else if (path.length > 2) this.document.remove(holder, 'server_removed', msg)
    else {
      const found = this.serverFound()
      if (found === undefined) return
      this.document.set(path, { url: found.url }, 'server_replaced', `${msg}; this is ${found.origin}`)
    }
  }

  /** The server given, else the one that the document names somewhere else. */
  private serverFound(): { url: string; origin: string } | undefined {
    if (this.server !== undefined) return { url: this.server, origin: 'the one given' }
    const document = this.document.value
    if (!isObject(document)) return undefined
    const leftover = usable(serversOf(document)[0])
    if (leftover !== undefined) return { url: leftover, origin: 'that of host and base path' }
    for (const item of isObject(document.paths) ? Object.values(document.paths) : []) {
      for (const holder of isObject(item) ? [item, ...Object.values(item)] : []) {
        const url = isObject(holder) && Array.isArray(holder.servers) ? usable(holder.servers[0]) : undefined
        if (url !== undefined) return { url, origin: 'the first that a path or an operation names' }
      }
    }
    return undefined
  }
}

/** The absolute address of a server to which calls can go, if it has no variables. */
function usable(server: unknown): string | undefined {
  const url = isObject(server) ? server.url : undefined
  return typeof url === 'string' && /^https?:\/\/[^{}]+$/.test(url) && unusableServer(url) === undefined
    ? url
    : undefined
}
