import { useState } from 'preact/hooks'
import { subjectOf, tagsOf } from './list.js'
import { Button, Differences, Field, Lines, Note, Problem, useAction, useLoad, useUnsaved, View } from './parts.js'
import { authorOf, readHistory, VIEWS } from './past.js'
import { ask, editsOf, KINDS, leaveTo, outcome, type Proposal, type Rights, unless } from './service.js'
import { dated, differencesOf, titled, visible } from './texts.js'
import { Agents } from './tool.js'

export function ProposalView({ id, rights }: { id: number; rights: Rights }) {
  const [reason, setReason] = useState('')
  useUnsaved('Your reason for the rejection', reason.trim() !== '', () => reason)
  const loaded = useLoad(async signal => {
    const read = await ask<Proposal>('GET', `proposals/${id}`, { signal })
    const { kind, record, state, base_version } = read.data
    const path = `${KINDS[VIEWS[kind]].path}/${record.id}?version=${base_version}`
    const base = await unless(ask<Record<string, unknown>>('GET', path, { signal }), 403, 404)
    const past = state === 'open' ? await unless(readHistory(VIEWS[kind], record.id, signal), 403, 404) : undefined
    return { ...read, base: base?.data, since: past?.data.filter(({ version }) => version > base_version) ?? [] }
  })
  const { data, base, etag = '', since = [] } = loaded.data ?? {}
  const decision = useAction(async (verb: string, options: object) => {
    const { warnings } = await ask('POST', `proposals/${id}/${verb.toLowerCase().split(' ')[0]}`, options)
    return () => leaveTo(location.hash, warnings.map(text => `${text}.`).join(' '))
  })
  const again = () => {
    decision.forget()
    loaded.again()
  }
  const button = (label: string, options = {}, is = true) => {
    const shared = { label, class: label === 'Approve' ? 'main' : '', onClick: () => decision.act(label, options) }
    return <Button disabled={decision.isBusy || !is} {...shared} />
  }
  if (!data) return <View title={`Proposal ${id}`} loaded={loaded} />
  const { kind, record, author, state, message, changes, conflicts, impact, may_approve, closed_at, closed_by } = data
  const [isOpen, view] = [state === 'open', VIEWS[kind]]
  const where = state === 'approved' ? ` To see them, open the changes of the ${KINDS[view].noun.toLowerCase()}.` : ''
  const kept = changes.filter(({ to }) => isOpen || to !== null)
  const before = kept.map(({ field, from }) => [field, isOpen ? from : base?.[field]])
  const after = Object.fromEntries(kept.map(({ field, to }) => [field, to]))
  const isMine = author.id === rights.me.user.id
  const isAgain = isMine && kept.length > 0 && (isOpen ? conflicts?.length !== 0 : state !== 'approved')
  const ended = closed_at && `${state} by ${closed_by?.email ?? 'the operator'} on ${dated(closed_at)}`
  return (
    <View
      title={`Proposed change to ${subjectOf(data)}`}
      tags={tagsOf(data)}
      state={`${outcome.text} Proposed by ${author.email} on ${dated(data.created_at)}${ended ? `; ${ended}` : ''}.`}
      loaded={loaded}
    >
      {message && <blockquote>{visible(message)}</blockquote>}
      {data.reason && <p>Reason: {visible(data.reason)}</p>}
      <a href={`#/${view}/${record.id}`}>See the {KINDS[view].noun.toLowerCase()} as it is now</a>
      {isOpen && conflicts !== null && conflicts.length > 0 && (
        <Note text={`Fields changed since this proposal: ${conflicts.map(titled).join(', ')}. Make a new proposal.`} />
      )}
      <Lines
        lines={since.map(each => `${dated(each.at)}: ${authorOf(each)} changed ${each.fields?.map(titled).join(', ')}`)}
      />
      {kept.length > 0 && <Differences list={differencesOf(Object.fromEntries(before), after)} />}
      {kept.length < changes.length && <Note text={`Cleared fields and long values are not shown.${where}`} />}
      {rights.proposes && isAgain && (
        <Button label="Propose again" onClick={() => leaveTo(`#/${view}/${record.id}`, '', editsOf(kept))} />
      )}
      {isOpen && impact && <Agents impact={impact} />}
      <Lines class="warnings" lines={loaded.data?.warnings ?? []} />
      <Problem problem={decision.problem} again={again} />
      {isOpen && isMine && rights.proposes && button('Withdraw')}
      {isMine && may_approve && rights.writes && button('Approve my own proposal', { headers: { 'if-match': etag } })}
      {!isMine && may_approve && rights.writes && (
        <div class="bar savebar">
          <Field label="Reason for a rejection" value={reason} onChange={setReason} />
          {button('Reject', { body: { reason } }, reason.trim() !== '')}
          {button('Approve', { headers: { 'if-match': etag } }, conflicts?.length === 0)}
        </div>
      )}
    </View>
  )
}
