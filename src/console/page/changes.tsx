import { useState } from 'preact/hooks'
import { Differences, Lines, Note, Problem, useLoad, View } from './parts.js'
import { ask, KINDS, readList, type View as Views } from './service.js'
import { counted, differencesOf, titled, visible } from './texts.js'

interface Change {
  kind: 'persona' | 'tool'
  id: number
  version: number
  action: string
  at: string
  fields?: string[]
  actor?: { email?: string; command?: string }
}

const [PAGES_MAX, SHOWN] = [20, 300]
const viewOf = ({ kind }: Change): Views => (kind === 'persona' ? 'agents' : 'tools')

/** Reads the feed from its beginning; the newest changes come last. */
async function readChanges(signal: AbortSignal) {
  const changes: Change[] = []
  let after = 'first'
  for (let pages = 0; pages < PAGES_MAX; pages++) {
    const { data } = await ask<{ changes: Change[]; next: string }>('GET', `changes?limit=1000&after=${after}`, {
      signal,
    })
    changes.push(...data.changes)
    if (data.next === after) break
    after = data.next
  }
  return changes.reverse()
}

/** All that happened, by day and person; deletions too. */
export function Changes() {
  const loaded = useLoad(async signal => {
    const [agents, tools] = await Promise.all([readList('agents', signal), readList('tools', signal)])
    const names = new Map<string, string>([
      ...agents.map(row => [`agents/${row.id}`, row.name] as const),
      ...tools.map(row => [`tools/${row.id}`, row.name] as const),
    ])
    return { names, changes: await readChanges(signal) }
  })
  const { names, changes } = loaded.data ?? {}
  const nameOf = (change: Change) => {
    const at = `${viewOf(change)}/${change.id}`
    return names?.get(at) ?? `${KINDS[viewOf(change)].noun} ${change.id}`
  }
  const shown = changes?.slice(0, SHOWN) ?? []
  const authorOf = ({ actor }: Change) => actor?.email ?? (actor ? `the operator (${actor.command})` : 'somebody')
  const days = Map.groupBy(shown, ({ at }) => new Date(at).toLocaleDateString(undefined, { dateStyle: 'full' }))
  const state = `${counted(changes?.length ?? 0, 'change')}.`
  return (
    <View title="Changes" loaded={loaded} state={state}>
      {[...days].map(([day, ofDay]) => (
        <section key={day}>
          <h2>{day}</h2>
          {[...Map.groupBy(ofDay, authorOf)].map(([author, list]) => (
            <div class="card">
              <strong>
                <bdi>{visible(author)}</bdi>
              </strong>
              {list.map(change => (
                <Happened key={`${change.kind}-${change.id}-${change.version}`} change={change} name={nameOf(change)} />
              ))}
            </div>
          ))}
        </section>
      ))}
      {(changes?.length ?? 0) > SHOWN && <Note text={`The newest ${SHOWN} are shown.`} />}
    </View>
  )
}

function Happened({ change, name }: { change: Change; name: string }) {
  const [isOpen, setOpen] = useState(false)
  const { id, version, action, at, fields = [] } = change
  const view = viewOf(change)
  const time = new Date(at).toLocaleTimeString(undefined, { timeStyle: 'short' })
  const text = `${time} ${action} ${name}${action === 'updated' ? `: ${fields.map(titled).join(', ')}` : ''}`
  const isCompared = version > 1 && change.fields !== undefined && action !== 'deleted' && action !== 'gone'
  if (!isCompared)
    return (
      <p>
        {visible(text)} {action !== 'gone' && <a href={`#/${view}/${id}`}>{KINDS[view].noun.toLowerCase()}</a>}
      </p>
    )
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{visible(text)}</summary>
      {isOpen && <Between {...{ view, id, version }} />}
      <p class="links">
        <a href={`#/${view}/${id}`}>{KINDS[view].noun}</a>
        <a href={`#/${view}/${id}/restore/${version - 1}`}>Restore what was before</a>
      </p>
    </details>
  )
}

/** What a version changed of the one before. */
function Between({ view, id, version }: { view: Views; id: number; version: number }) {
  const read = (at: number, signal: AbortSignal) =>
    ask<object>('GET', `${KINDS[view].path}/${id}?version=${at}`, { signal, isExact: true })
  const loaded = useLoad(signal => Promise.all([read(version - 1, signal), read(version, signal)]))
  const [before, after] = loaded.data ?? []
  return (
    <>
      <Problem {...loaded} />
      {before && after && <Differences list={differencesOf(before.data, after.data)} />}
      <Lines lines={after?.warnings ?? []} />
    </>
  )
}
