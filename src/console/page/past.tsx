import { useEffect, useState } from 'preact/hooks'
import { Button, Differences, Lines, Problem, Review, useAction, useLists, useLoad, View } from './parts.js'
import { type Answer, ask, KINDS, leaveTo, newKey, unless, type View as Views } from './service.js'
import { counted, dated, differencesOf, titled, visible } from './texts.js'

/** A change, from a record's history or from the feed of all changes. */
interface Change {
  version: number
  at: string
  action: string
  actor?: { email?: string; command?: string }
  fields?: string[]
  /** Null if the contents are no longer kept. */
  changes?: object[] | null
}

type FeedChange = Change & { kind: keyof typeof VIEWS; id: number }
export const VIEWS = { persona: 'agents', tool: 'tools', proposal: 'proposals' } as const

export const readHistory = (view: Views, id: number, signal?: AbortSignal, page = ''): Promise<Answer<Change[]>> =>
  ask('GET', `${KINDS[view].path}/${id}/history${page}`, { signal })

export const authorOf = ({ actor }: Change) => actor?.email ?? (actor ? `the operator (${actor.command})` : 'somebody')

interface HappenedProps {
  view: Views | 'proposals'
  id: number
  change: Change
  /** The record's name, if several records are listed. */
  name?: string
  /** The author and time. */
  note: string
  isCompared?: boolean
  restores: boolean
}

/** A change. It expands to its difference, if that is kept, and can be reverted. */
function Happened({ view, id, change, name, note, isCompared = true, restores }: HappenedProps) {
  const [isOpen, setOpen] = useState(false)
  const [isRestoring, setRestoring] = useState(false)
  const { version, action, fields, changes } = change
  const isChange = fields !== undefined && !['created', 'deleted', 'gone'].includes(action)
  const what = isChange ? fields.map(titled).join(', ') : action
  const said = (
    <>
      <strong>{visible(name ? `${name}: ${what}` : titled(what))}</strong>
      <span class="note">{visible(`Version ${version}, ${isChange ? `${action} ` : ''}${note}`)}</span>
    </>
  )
  const before = version - 1
  const more = (
    <p class="links">
      {name && action !== 'gone' && <a href={`#/${view}/${id}`}>Open</a>}
      {changes === null && 'Its contents are no longer kept.'}
      {restores && fields && before > 0 && (
        <Button class="link" label={`Restore version ${before}`} onClick={() => setRestoring(true)} />
      )}
      {isRestoring && view !== 'proposals' && (
        <Restore {...{ view, id, version: before }} onClose={() => setRestoring(false)} />
      )}
    </p>
  )
  if (!isChange || !isCompared || changes === null || view === 'proposals')
    return (
      <div class="change">
        {said} {more}
      </div>
    )
  return (
    <details class="change" onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{said}</summary>
      {isOpen && <Between {...{ view, id, version }} />}
      {more}
    </details>
  )
}

type VersionProps = { view: Views; id: number; version: number }

/** The changes of a version from the previous one. */
function Between({ view, id, version }: VersionProps) {
  const loaded = useLoad(signal => {
    const read = (at: number) =>
      ask<object>('GET', `${KINDS[view].path}/${id}?version=${at}`, { signal, isExact: true })
    return Promise.all([unless(read(version - 1), 404), read(version)])
  })
  const [before, after] = loaded.data ?? []
  return (
    <>
      <Problem {...loaded} />
      {after && <Differences list={differencesOf(before?.data ?? {}, after.data)} />}
      <Lines lines={after?.warnings ?? []} />
    </>
  )
}

/** Shows the effect of restoring a version, and restores it. */
function Restore({ view, id, version, onClose }: VersionProps & { onClose(): void }) {
  const [key, setKey] = useState(newKey)
  const [tag, setTag] = useState('')
  const [name, setName] = useState('')
  const { path, noun, root } = KINDS[view]
  const restore = (query: string, tag: string | undefined, options: object) =>
    ask<{ name: string }>('POST', `${root}/${id}/restore${query}`, {
      ...{ body: { version }, isExact: true, ...options },
      headers: { ...(tag && { 'if-match': tag }), 'idempotency-key': key },
    })
  const look = async (signal: AbortSignal) => {
    const now = await unless(ask<{ name: string }>('GET', `${path}/${id}`, { signal, isExact: true }), 404) // 404 for a deleted agent
    const { data: after, warnings, etag } = await restore('?dry_run=true', now?.etag, { signal })
    setTag(now?.etag ?? etag)
    setKey(newKey) // another precondition is another request
    setName((now?.data ?? after).name)
    const before = Object.fromEntries(Object.entries(now?.data ?? {}).filter(([name]) => Object.hasOwn(after, name)))
    return { before, after, warnings }
  }
  const send = async () => {
    await restore('', tag, {})
    leaveTo(`#/${view}/${id}`)
  }
  const label = `Restore version ${version}`
  return <Review title={`${label} of ${name || `${noun.toLowerCase()} ${id}`}?`} {...{ label, look, send, onClose }} />
}

type HistoryProps = { view: Views; id: number; isDeleted: boolean; first: Answer<Change[]>; restores: boolean }

/** The changes of a record with author, time and fields, newest first. */
export function History({ view, id, isDeleted, first, restores }: HistoryProps) {
  const [pages, setPages] = useState([first])
  useEffect(() => setPages([first]), [first])
  const last = pages.at(-1) ?? first
  const older = useAction(async () => setPages([...pages, await readHistory(view, id, undefined, last.next)]))
  return (
    <section>
      <h2>Changes</h2>
      {pages
        .flatMap(({ data }) => data)
        .map(change => (
          <Happened
            key={change.version}
            {...{ view, id, change, restores, isCompared: !isDeleted }}
            note={`by ${authorOf(change)}, ${dated(change.at)}`}
          />
        ))}
      <Lines lines={last.warnings.filter(text => !text.includes('Link names'))} />
      <Problem problem={older.problem} again={older.act} />
      {last.next && <Button label="Older changes" disabled={older.isBusy} onClick={older.act} />}
    </section>
  )
}

const [ROWS, ROWS_MAX] = [1_000, 20_000]

/** All changes including deletions, newest first, grouped by day and person. */
export function Changes({ writes }: { writes: boolean }) {
  const [rows, setRows] = useState(ROWS)
  const lists = useLists(true, ['persona'], ['tool'], ['persona', { deleted: 'true' }]).data ?? []
  const loaded = useLoad(async signal => {
    const changes: FeedChange[] = []
    for (let [after, before] = [`-${rows}`, '']; after !== before; ) {
      const path = `changes?limit=${ROWS}&after=${after}`
      const { data } = await ask<{ changes: FeedChange[]; next: string }>('GET', path, { signal })
      changes.push(...data.changes)
      before = after
      after = data.next
    }
    return changes.reverse()
  }, rows)
  const named = lists.flatMap((list, i) =>
    list.map(({ id, name }) => [`${i === 1 ? 'tool' : 'persona'} ${id}`, name] as const),
  )
  const names = new Map<string, string>(named)
  const dayOf = (change: Change) =>
    `${new Date(change.at).toLocaleDateString(undefined, { dateStyle: 'full' })}, ${authorOf(change)}`
  const state = `${counted(loaded.data?.length ?? 0, 'change')} among the newest ${rows.toLocaleString('en')} of everybody.`
  const shown = ({ kind, id, at, action, ...change }: FeedChange): HappenedProps & { key: string } => ({
    key: `${kind} ${id} ${change.version}`,
    ...{ view: VIEWS[kind], id, change: { ...change, at, action }, restores: writes && kind !== 'proposal' },
    name: names.get(`${kind} ${id}`) ?? `${kind === 'persona' ? 'Agent' : titled(kind)} ${id}`,
    note: new Date(at).toLocaleTimeString(undefined, { timeStyle: 'short' }),
  })
  return (
    <View title="Changes" loaded={loaded} state={state}>
      {[...Map.groupBy(loaded.data ?? [], dayOf)].map(([title, list]) => (
        <section class="card" key={title}>
          <h2>{visible(title)}</h2>
          {list.map(change => (
            <Happened {...shown(change)} />
          ))}
        </section>
      ))}
      {loaded.data && rows < ROWS_MAX && <Button label="Older changes" onClick={() => setRows(rows + ROWS)} />}
    </View>
  )
}
