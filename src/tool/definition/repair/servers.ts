import type { Loc } from '../check/findings.js'
import { isObject, parsedUrl } from '../check/references.js'
import { lacksScheme, unusableServer } from '../check/servers.js'
import type { EditedDocument } from './edits.js'
import { serversOf } from './swagger.js'

/** Repairs the servers of a definition. `server` is the address given for it, if any. */
export class ServerRepairs {
  constructor(
    private readonly document: EditedDocument,
    private readonly server: string | undefined,
  ) {}

  /** Makes the first server absolute if it is relative or has no scheme and `server` is given. */
  resolveRelative(): void {
    const url = this.document.at(['servers', 0, 'url'])
    if (typeof url !== 'string' || url.includes('{') || /^[a-z][a-z0-9+.-]*:/i.test(url)) return
    const resolved = this.absolute(url)
    if (resolved === undefined) return
    this.document.set(['servers', 0, 'url'], resolved, 'server_resolved', 'calls need an absolute address')
  }

  /** Resolves a relative address with `server`, or returns `server` for an address that only lacks its scheme. */
  private absolute(url: string): string | undefined {
    if (this.server === undefined) return undefined
    if (url === '' || url === '/') return this.server
    const { host, protocol } = new URL(this.server)
    const isHost = lacksScheme(url)
    const resolved = isHost ? parsedUrl(`${protocol}//${url}`) : parsedUrl(url, this.server)
    // Two slashes of either kind begin another host: the address is not relative then.
    return resolved?.host === host ? resolved.href : isHost ? this.server : undefined
  }

  /** Adds a server to a document without one, if one is found. */
  add(): void {
    const found = this.serverFound()
    if (found === undefined) return
    this.document.set(['servers'], [{ url: found.url }], 'server_added', `no server was named; this is ${found.origin}`)
  }

  /** Removes an unusable server, or replaces it if it is the last. */
  repair(path: Loc): void {
    const holder = path.slice(0, -1)
    const list = this.document.at(holder)
    const url = this.document.at([...path, 'url'])
    const resolved = typeof url === 'string' && lacksScheme(url) ? this.absolute(url) : undefined
    if (resolved !== undefined) {
      this.document.set([...path, 'url'], resolved, 'server_resolved', 'calls need an absolute address')
      return
    }
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

  /** Returns `server`, else the one that the document names elsewhere. */
  private serverFound(): { url: string; origin: string } | undefined {
    if (this.server !== undefined) return { url: this.server, origin: 'the one given' }
    const document = this.document.value
    if (!isObject(document)) return undefined
    const url = serversOf(document)[0]?.url
    const isUsable = url !== undefined && /^https?:\/\/[^{}]+$/.test(url) && unusableServer(url) === undefined
    return isUsable ? { url, origin: 'that of host and base path' } : undefined
  }
}
