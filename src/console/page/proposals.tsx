import { useState } from 'preact/hooks'
import { Agents, type ImpactReport } from './functions.js'
import { Button, Check, Differences, Field, Note, Problem, Tags, useAction, useLoad, View } from './parts.js'
import { type Answer, ask, type Rights } from './service.js'
import { counted, dated, differencesOf, titled, visible } from './texts.js'

interface Proposal {
  id: number
  kind: 'persona' | 'tool'
  state: 'open' | 'approved' | 'rejected' | 'withdrawn' | 'closed'
  author: { id: string; email: string }
  message: string
  record: { id: number; name: string; version: number }
  base_version: number
  fields: string[]
  conflicts: string[]
  created_at: string
  closed_at: string | null
  closed_by: { email: string } | null
  reason: string | null
  changes: { field: string; from: unknown; to: unknown }[]
  impact: ImpactReport | null
}

const ROWS_MAX = 500
const nounOf = (kind: Proposal['kind']) => (kind === 'persona' ? 'agent' : 'tool')
const conflictTags = ({ conflicts }: Proposal) => (conflicts.length > 0 ? ['conflict'] : [])

/** The caller's proposals, and those that they may decide. */
export function Proposals() {
  const [isAll, setAll] = useState(false)
  const loaded = useLoad(async signal => {
    const rows: Proposal[] = []
    for (
      let next: string | undefined = isAll ? '?limit=100' : '?limit=100&state=open';
      next && rows.length < ROWS_MAX;
    ) {
      const page: Answer<Proposal[]> = await ask('GET', `proposals${next}`, { signal })
      rows.push(...page.data)
      next = page.next
    }
    return rows.reverse()
  }, isAll)
  const rows = loaded.data ?? []
  return (
    <View title="Proposals" loaded={loaded} state={`${counted(rows.length, isAll ? 'proposal' : 'open proposal')}.`}>
      <Check label="Those that are decided, too" checked={isAll} onChange={setAll} />
      <ul class="rows">
        {rows.map(row => (
          <li key={row.id}>
            <span class="number">{row.id}</span>
            <span>
              <a href={`#/proposals/${row.id}`}>
                {visible(`${row.record.name}: ${row.fields.map(titled).join(', ')}`)}
              </a>{' '}
              <Tags names={[row.state, ...conflictTags(row)]} />
            </span>
            <bdi class="about">{visible(row.message)}</bdi>
            <bdi class="note">{visible(`${row.author.email}, ${dated(row.created_at)}`)}</bdi>
          </li>
        ))}
      </ul>
    </View>
  )
}

/** A proposal: what it would change of what is stored now, for whom, and the decision. */
export function ProposalView({ id, rights }: { id: number; rights: Rights }) {
  const [reason, setReason] = useState('')
  const loaded = useLoad(signal => ask<Proposal>('GET', `proposals/${id}`, { signal, isExact: true }))
  const { data, etag = '' } = loaded.data ?? {}
  const act =
    (verb: string, options = {}) =>
    async () => {
      await ask('POST', `proposals/${id}/${verb}`, options)
      loaded.again()
    }
  const approve = useAction(act('approve', { headers: { 'if-match': etag } }))
  const reject = useAction(act('reject', { body: { reason } }))
  const withdraw = useAction(act('withdraw'))
  if (!data) return <View up={['#/proposals', 'Proposals']} title={`Proposal ${id}`} loaded={loaded} />
  const { kind, record, author, state, message, changes, conflicts, impact, closed_at, closed_by } = data
  const side = (name: 'from' | 'to') => Object.fromEntries(changes.map(change => [change.field, change[name]]))
  const isMine = author.id === rights.me.user.id
  const isOpen = state === 'open'
  const by = closed_at
    ? `${state}, ${closed_by?.email ?? 'the operator'}, ${dated(closed_at)}`
    : `open since ${dated(data.created_at)}`
  const title = `Proposal for the ${nounOf(kind)} ${record.name}`
  const again = approve.problem ? loaded.again : undefined
  return (
    <View
      up={['#/proposals', 'Proposals']}
      title={title}
      tags={conflictTags(data)}
      state={`By ${author.email}, ${by}.`}
      loaded={loaded}
    >
      <a href={`#/${kind === 'persona' ? 'agents' : 'tools'}/${record.id}`}>{visible(record.name)}</a>
      {message && <blockquote class="text">{visible(message)}</blockquote>}
      {data.reason && <p>Reason: {visible(data.reason)}</p>}
      {isOpen && conflicts.length > 0 && (
        <Note
          text={`Changed since it was proposed: ${conflicts.map(titled).join(', ')}. It has to be proposed again.`}
        />
      )}
      {isOpen && <Differences list={differencesOf(side('from'), side('to'))} />}
      {isOpen && impact && <Agents impact={impact} />}
      <Problem problem={approve.problem ?? reject.problem ?? withdraw.problem} again={again} />
      {isOpen && isMine && rights.proposes && (
        <Button label="Withdraw" disabled={withdraw.isBusy} onClick={withdraw.act} />
      )}
      {isOpen && !isMine && rights.writes && (
        <div class="savebar form">
          <Field label="Reason, to reject it" value={reason} onChange={setReason} />
          <Button label="Reject" disabled={reject.isBusy || reason.trim() === ''} onClick={reject.act} />
          <Button
            label="Approve"
            class="main"
            disabled={approve.isBusy || conflicts.length > 0}
            onClick={approve.act}
          />
        </div>
      )}
    </View>
  )
}
