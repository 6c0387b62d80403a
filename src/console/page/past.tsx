import { useEffect, useState } from 'preact/hooks'
import { Button, Differences, Field, Lines, Problem, Runs, useAction, useLoad, View } from './parts.js'
import { type Answer, ask, KINDS, newKey, unless, type View as Views } from './service.js'
import { dated, differencesOf, titled, visible } from './texts.js'

interface Change {
  field: string
  from?: unknown
  to?: unknown
  shortened?: object
}

export interface Entry {
  version: number
  at: string
  action: string
  actor: { email?: string; command?: string }
  changes: Change[] | null
}

export const readHistory = (view: Views, id: number, signal?: AbortSignal, page = '') =>
  ask<Entry[]>('GET', `${KINDS[view].path}/${id}/history${page}`, { signal })

const SHORT = 500
const changedLength = (runs: { as: string; text: string }[]) =>
  runs.reduce((sum, { as, text }) => sum + (as === 'span' ? 0 : text.length), 0)

/** A changed field: a short difference at once, a long one by its name, a definition by its parts. */
function Changed({ change: { field, from, to, shortened }, href }: { change: Change; href: string }) {
  const list = differencesOf({ [field]: from }, { [field]: to })
  const runs = list[0]?.runs ?? []
  const isShort = !shortened && field !== 'definition' && changedLength(runs) <= SHORT
  const titles = list.map(({ title }) => title)
  const parts = shortened || field !== 'definition' ? 'a long text' : titles.slice(0, 5).join(', ')
  return (
    <li>
      {isShort ? titled(field) : <a href={href}>{titled(field)}</a>}{' '}
      <span class="runs" dir="auto">
        {isShort ? <Runs runs={runs} around={20} /> : visible(parts)}
      </span>
    </li>
  )
}

interface HistoryProps {
  view: Views
  id: number
  /** The stored version; 0 of a deleted record. */
  now: number
  first: Answer<Entry[]>
  restores: boolean
}

/** What happened to a record, newest first: who, when, and which fields. */
export function History({ view, id, now, first, restores }: HistoryProps) {
  const [pages, setPages] = useState([first])
  useEffect(() => setPages([first]), [first])
  const last = pages.at(-1) as Answer<Entry[]> // there is always a first
  const older = useAction(async () => setPages([...pages, await readHistory(view, id, undefined, last.next)]))
  const entries = pages.flatMap(({ data }) => data)
  return (
    <section>
      <h2>Changes</h2>
      <ol class="entries">
        {entries.map(({ version, at, action, actor, changes }, i) => {
          const before = entries[i + 1]?.version ?? version - 1
          const isKept = changes !== null && action !== 'deleted'
          const base = `#/${view}/${id}`
          const links = Object.entries({
            [`Compare with ${before}`]: isKept && before > 0 && `${base}/compare/${before}/${version}`,
            'Compare with now': isKept && version !== now && now > 0 && `${base}/compare/${version}/${now}`,
            [`Restore ${version}`]: isKept && version !== now && restores && `${base}/restore/${version}`,
          })
          return (
            <li key={version}>
              <p>
                <strong>Version {version}</strong> {action} by{' '}
                <bdi>{visible(actor.email ?? `the operator (${actor.command})`)}</bdi>
              </p>
              <time class="note">{dated(at)}</time>
              <ul>
                {action !== 'created' &&
                  changes?.map(change => <Changed change={change} href={`${base}/compare/${before}/${version}`} />)}
              </ul>
              {!changes && <p class="note">Its contents are no longer kept.</p>}
              <p class="links">{links.map(([text, href]) => href && <a href={href}>{text}</a>)}</p>
            </li>
          )
        })}
      </ol>
      <Lines lines={last.warnings.filter(text => !text.includes('Link names'))} />
      <Problem problem={older.problem} again={older.act} />
      {last.next && <Button label="Older changes" disabled={older.isBusy} onClick={older.act} />}
    </section>
  )
}

interface PastProps {
  view: Views
  id: number
  version: number
  /** Without it, what restoring the version would make of what is stored. */
  other: number | undefined
}

/** Two versions; or what restoring a version would change, and the button for it. */
export function Past({ view, id, version, other }: PastProps) {
  const { path, noun, root } = KINDS[view]
  const [key] = useState(newKey)
  const [pair, setPair] = useState([String(version), String(other)])
  const loaded = useLoad(async signal => {
    const read = (at: number) => ask<object>('GET', `${path}/${id}?version=${at}`, { signal, isExact: true })
    if (other !== undefined) {
      const [before, after] = await Promise.all([read(version), read(other)])
      return { before: before.data, after: after.data, warnings: [], tag: '' }
    }
    const now = await unless(ask<object>('GET', `${path}/${id}`, { signal, isExact: true }), 404) // a deleted agent
    const headers = now && { 'if-match': now.etag }
    const options = { body: { version }, headers, signal, isExact: true }
    const { data, warnings, etag } = await ask<object>('POST', `${root}/${id}/restore?dry_run=true`, options)
    const before = Object.fromEntries(Object.entries(now?.data ?? {}).filter(([name]) => Object.hasOwn(data, name)))
    return { before, after: data, warnings, tag: now?.etag ?? etag }
  })
  const { data } = loaded
  const list = data ? differencesOf(data.before, data.after) : []
  const restore = useAction(async () => {
    const headers = { 'if-match': data?.tag ?? '', 'idempotency-key': key }
    await ask('POST', `${root}/${id}/restore`, { body: { version }, headers })
    location.replace(`#/${view}/${id}`)
  })
  const compare = (event: Event) => {
    event.preventDefault()
    location.hash = `#/${view}/${id}/compare/${pair.map(Number).join('/')}`
  }
  const title = other === undefined ? `restore version ${version}` : `version ${version} and version ${other}`
  const found = list.length === 1 ? '1 part differs' : `${list.length} parts differ`
  const state = other === undefined ? `With version ${version} restored, ${found} from what is stored.` : `${found}.`
  const putAt = (at: number) => (value: string) => setPair(pair.with(at, value))
  return (
    <View up={[`#/${view}/${id}`, `${noun} ${id}`]} title={`${noun} ${id}: ${title}`} loaded={loaded} state={state}>
      {other !== undefined && (
        <form class="bar" onSubmit={compare}>
          <Field label="Version" type="number" required value={pair[0] ?? ''} onChange={putAt(0)} />
          <Field label="with version" type="number" required value={pair[1] ?? ''} onChange={putAt(1)} />
          <Button label="Compare" />
        </form>
      )}
      <Lines lines={data?.warnings ?? []} />
      {data && <Differences list={list} />}
      {data && other === undefined && (
        <p class="bar">
          <Button class="main" label={`Restore version ${version}`} disabled={restore.isBusy} onClick={restore.act} />
          <a href={`#/${view}/${id}`}>Keep what is stored</a>
        </p>
      )}
      <Problem problem={restore.problem} again={loaded.again} />
    </View>
  )
}
