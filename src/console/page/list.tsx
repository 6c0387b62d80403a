import { h } from 'preact'
import { useState } from 'preact/hooks'
import { Check, Note, Tags, useLoad, useSearch, View } from './parts.js'
import { type Kind, type ListName, type Proposal, type Rights, type Row, readAll } from './service.js'
import { counted, dated, titled, visible } from './texts.js'

const SHOWN = 200

export const tagsOf = (row: Partial<Row & Proposal>): string[] =>
  Object.entries({
    default: row.is_default_persona,
    'open to everybody': row.is_public,
    'built in': row.builtin_persona || row.in_code_tool_id,
    MCP: row.mcp_server_id,
    hidden: row.is_visible === false,
    off: row.enabled === false,
    [row.state ?? '']: row.state,
    conflict: row.conflicts?.length,
  }).flatMap(([name, is]) => (is ? [name] : []))

export const subjectOf = ({ kind, record }: Proposal) =>
  record.name ?? `${kind === 'tool' ? 'tool' : 'agent'} ${record.id}`

const cellsOf = (row: Row | Proposal): [name: string, ...string[]] => {
  if (!('author' in row))
    return [row.name, row.description, row.owner?.email ?? 'no owner', row.updated_at ? dated(row.updated_at) : '']
  const name = `${subjectOf(row)}: ${row.fields.map(titled).join(', ')}`
  return [name, row.message, row.author.email, dated(row.created_at)]
}

const HINT = 'Users can propose changes to agents that they can see and to tools that they can update.'
const SECOND: Record<string, [string, ListName] | undefined> = {
  agents: ['Deleted agents', 'deleted agents'],
  proposals: ['Include my ended proposals', 'proposals'],
}

export function List({ view, rights }: { view: Kind | 'proposals'; rights: Rights }) {
  const [{ rows, isAll }, setRows] = useState<{ rows: (Row | Proposal)[]; isAll: boolean }>({ rows: [], isAll: false })
  const [isOn, setOn] = useState(false)
  const { isFound, field } = useSearch('Name, person, number')
  const [option, second] = SECOND[view] ?? []
  const list = isOn && second ? second : view === 'proposals' ? 'open proposals' : view
  const show = (rows: (Row | Proposal)[], isAll: boolean) => setRows({ rows, isAll })
  const loaded = useLoad(signal => readAll(list, signal, show), list)
  const isProposals = view === 'proposals'
  const heads = isProposals ? ['Change', 'Message', 'Author', 'Date'] : ['Name', 'Description', 'Owner', 'Last change']
  const found = rows.filter(row => isFound([row.id, ...cellsOf(row)].join(' ')))
  if (isProposals) found.reverse()
  const noun = list.slice(0, -1)
  const part = found.length < rows.length ? `${found.length.toLocaleString('en')} found among ` : ''
  const state = `${part}${counted(rows.length, noun)}${isAll ? '' : ' loaded so far'}`
  const none = isProposals ? HINT : `This token cannot see any ${noun}s.`
  return (
    <View title={titled(view)} loaded={loaded} state={isAll || rows.length > 0 ? state : ''}>
      <search class="bar">
        {field}
        {option && <Check label={option} checked={isOn} onChange={setOn} />}
        {!isProposals && rights.makes[view] && h('a', { class: 'button main', href: `#/${view}/0` }, `New ${noun}`)}
      </search>
      {isAll && found.length === 0 && <Note text={rows.length > 0 ? `No ${noun} matches this search.` : none} />}
      {found.length > 0 && (
        <table>
          <thead>
            <tr>{['No.', ...heads].map(text => h('th', { scope: 'col' }, text))}</tr>
          </thead>
          <tbody>
            {found.slice(0, SHOWN).map(row => {
              const [name, ...cells] = cellsOf(row)
              return (
                <tr key={row.id}>
                  <td>{row.id}</td>
                  <td>
                    <a href={`#/${view}/${row.id}`}>{visible(name) || '(no name)'}</a> <Tags names={tagsOf(row)} />
                  </td>
                  {cells.map(text => h('td', {}, visible(text)))}
                </tr>
              )
            })}
          </tbody>
        </table>
      )}
      {found.length > SHOWN && <Note text={`Only the first ${SHOWN} are shown. Search to find others.`} />}
    </View>
  )
}
