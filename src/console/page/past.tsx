import { useRef, useState } from 'preact/hooks'
import { Button, Differences, Lines, Problem, Review, useAction, useLists, useLoad, useSearch, View } from './parts.js'
import { type Answer, ask, type Change, KINDS, type Kind, leaveTo, newKey, type Row, unless } from './service.js'
import { counted, dated, differencesOf, titled, visible } from './texts.js'

type FeedChange = Change & { kind: keyof typeof VIEWS; id: number }
export const VIEWS = { persona: 'agents', tool: 'tools', proposal: 'proposals' } as const

export const readHistory = (view: Kind, id: number, signal?: AbortSignal, page = ''): Promise<Answer<Change[]>> =>
  ask('GET', `${KINDS[view].path}/${id}/history${page}`, { signal })

export const authorOf = ({ actor }: Change) => actor?.email ?? (actor ? `the operator (${actor.command})` : 'somebody')
const isUpdate = ({ action, fields }: Change) => fields && !['created', 'deleted', 'gone'].includes(action)
const whatOf = (change: Change) => (isUpdate(change) && change.fields?.map(titled).join(', ')) || titled(change.action)

interface HappenedProps {
  view: Kind | 'proposals'
  id: number
  change: Change
  name: string
  isNamed?: boolean
  restores: boolean
}

function Happened({ view, id, change, name, isNamed, restores }: HappenedProps) {
  const [[isOpen, setOpen], [isRestoring, setRestoring]] = [useState(false), useState(false)]
  const { version, action, fields } = change
  const [before, numbered] = [version - 1, view === 'proposals' ? '' : `Version ${version}, `]
  const time = new Date(change.at).toLocaleTimeString(undefined, { timeStyle: 'short' })
  const note = isNamed ? time : `by ${authorOf(change)} on ${dated(change.at)}`
  const isCompared = view !== 'proposals' && isUpdate(change)
  const [Box, Head] = isCompared ? (['details', 'summary'] as const) : (['div', 'p'] as const)
  return (
    <div class="change">
      {isNamed && <a href={`#/${view}/${id}`}>{visible(name)}</a>}
      <Box onToggle={() => setOpen(!isOpen)}>
        <Head>
          <strong>{visible(whatOf(change))}</strong>
          <span class="note">{visible(`${numbered}${isCompared ? `${action} ` : ''}${note}`)}</span>
        </Head>
        {isOpen && isCompared && <Between {...{ view, id, version }} />}
        {restores && fields && before > 0 && (
          <Button class="link" label={`Restore version ${before}`} onClick={() => setRestoring(true)} />
        )}
        {isRestoring && view !== 'proposals' && (
          <Restore {...{ view, id, name, version: before }} onClose={() => setRestoring(false)} />
        )}
      </Box>
    </div>
  )
}

const UNREAD = 'This version cannot be shown: the record is deleted, you cannot see it, or this change deleted it'
type VersionProps = { view: Kind; id: number; version: number }

function Between({ view, id, version }: VersionProps) {
  const loaded = useLoad(signal => {
    const read = (at: number) => ask<object>('GET', `${KINDS[view].path}/${id}?version=${at}`, { signal })
    return Promise.all([version - 1, version].map(at => unless(read(at), 404)))
  })
  const [before, after] = loaded.data ?? []
  return (
    <>
      <Problem {...loaded} problem={loaded.problem ?? (loaded.data && !after && UNREAD)} />
      {after && <Differences list={differencesOf(before?.data ?? {}, after.data)} />}
      <Lines lines={after?.warnings ?? []} />
    </>
  )
}

function Restore({ view, id, version, name, onClose }: VersionProps & { name: string; onClose(): void }) {
  const { path, root } = KINDS[view]
  const seen = useRef({})
  const restore = (query: string, options: object) =>
    ask<object>('POST', `${root}/${id}/restore${query}`, { body: { version }, ...options })
  const look = async (signal: AbortSignal) => {
    const now = await unless(ask<object>('GET', `${path}/${id}`, { signal }), 404) // 404 for a deleted agent
    const tagged = { 'if-match': now?.etag ?? '*' }
    const { data: after, warnings, etag } = await restore('?dry_run=true', { headers: tagged, signal })
    seen.current = { 'if-match': now?.etag ?? etag, 'idempotency-key': newKey() }
    const before = Object.fromEntries(Object.entries(now?.data ?? {}).filter(([name]) => Object.hasOwn(after, name)))
    return { before, after, warnings }
  }
  const send = async () => {
    await restore('', { headers: seen.current })
    return () => leaveTo(`#/${view}/${id}`, 'Restored.')
  }
  const label = `Restore version ${version}`
  return <Review title={`${label} of ${name}?`} {...{ label, look, send, onClose }} />
}

type HistoryProps = { view: Kind; id: number; name: string; first: Answer<Change[]>; restores: boolean }

export function History({ first, ...props }: HistoryProps) {
  const [pages, setPages] = useState([first])
  const last = pages.at(-1) ?? first
  const { view, id } = props
  const older = useAction(async () => setPages([...pages, await readHistory(view, id, undefined, last.next)]))
  const changes = pages.flatMap(({ data }) => data)
  return (
    <section>
      <h2>Changes</h2>
      {changes.map(change => (
        <Happened {...{ change, ...props }} />
      ))}
      <Lines lines={last.warnings.filter(text => !text.includes('; Link has the address'))} />
      <Problem problem={older.problem} again={older.act} />
      {last.next && <Button label="Older changes" disabled={older.isBusy} onClick={older.act} />}
    </section>
  )
}

const [ROWS, ROWS_MAX] = [1_000, 20_000]

export function Changes({ writes }: { writes: boolean }) {
  const [rows, setRows] = useState(ROWS)
  const { isFound, field } = useSearch('Name, person, field')
  const [agents = [], tools = [], deleted = []] = useLists(true, 'agents', 'tools', 'deleted agents')
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
  const namesOf = (kind: string, list: Row[]) => list.map(({ id, name }) => [`${kind} ${id}`, name] as const)
  const names = new Map([...namesOf('persona', [...deleted, ...agents]), ...namesOf('tool', tools)])
  const nameOf = ({ kind, id }: FeedChange) =>
    names.get(`${kind} ${id}`) ?? `${kind === 'persona' ? 'Agent' : titled(kind)} ${id}`
  const dayOf = (change: Change) =>
    `${new Date(change.at).toLocaleDateString(undefined, { dateStyle: 'full' })}, ${authorOf(change)}`
  const found = (loaded.data ?? []).filter(one => isFound(`${nameOf(one)} ${whatOf(one)} ${dayOf(one)}`))
  const state = `Found ${counted(found.length, 'change')} that you can see among the newest ${rows.toLocaleString('en')}.`
  return (
    <View title="Changes" loaded={loaded} state={state}>
      <search class="bar">{field}</search>
      {[...Map.groupBy(found, dayOf)].map(([title, list]) => (
        <section class="card" key={title}>
          <h2>{visible(title)}</h2>
          {list.map(change => (
            <Happened
              isNamed
              key={`${change.kind} ${change.id} ${change.version}`}
              {...{ view: VIEWS[change.kind], id: change.id, change, name: nameOf(change) }}
              restores={writes && (change.kind === 'persona' || names.has(`${change.kind} ${change.id}`))} // deleted tools cannot be restored
            />
          ))}
        </section>
      ))}
      {loaded.data && rows < ROWS_MAX && <Button label="Older changes" onClick={() => setRows(rows + ROWS)} />}
    </View>
  )
}
