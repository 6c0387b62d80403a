import { render } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Agent } from './agent.js'
import { Changes } from './changes.js'
import { List } from './list.js'
import { Button, Dialog, Field, Problem, SESSION_ENDED } from './parts.js'
import { Past } from './past.js'
import { Proposals, ProposalView } from './proposals.js'
import { ask, type Me, type Rights, rightsOf, setToken, unsaved, type View } from './service.js'
import { visible } from './texts.js'
import { NewTool, Tool } from './tool.js'

const NOTE = `It begins with pat_, sa_, ro_ or pp_. It stays in the memory of this page, and is gone when you reload or close it.
  An operator makes one with "agentctl token create".`

function SignIn({ isEnded, onSignedIn }: { isEnded: boolean; onSignedIn: (me: Me) => void }) {
  const [problem, setProblem] = useState<unknown>()
  const [token, setText] = useState('')
  const form = useRef<HTMLFormElement>(null)
  useLayoutEffect(() => form.current?.querySelector('input')?.focus(), [])
  const signIn = async (event: Event) => {
    event.preventDefault()
    const strange = /[^\x21-\x7e]/u.exec(token.trim())
    setProblem(
      strange && `No token has the character ${visible(strange[0])} of place ${strange.index + 1}: copy it again`,
    )
    if (strange) return
    setToken(token.trim())
    await ask<Me>('GET', 'me').then(({ data }) => onSignedIn(data), setProblem)
  }
  return (
    <form class="signIn form" onSubmit={signIn} ref={form}>
      <h1>{isEnded ? 'Your session has ended' : 'Sign in'}</h1>
      {isEnded && <p>What you typed is kept. Sign in again to go on where you were.</p>}
      <Field label="Access token" type="password" required value={token} onChange={setText} />
      <p class="note">{NOTE}</p>
      <Button class="main" label="Sign in" />
      <Problem problem={problem} />
    </form>
  )
}

/** Numbers alone: they become parts of requests. */
const ADDRESS =
  /^#\/(?:(agents|tools)(?:\/(\d+)(?:\/(?:compare\/(\d+)\/(\d+)|restore\/(\d+)))?)?|new|changes|proposals(?:\/(\d+))?)$/

function Main({ address, rights }: { address: string; rights: Rights }) {
  const [, view, number, first, second, restored, proposal] = ADDRESS.exec(address) ?? []
  const [id, version, other] = [
    Number(number),
    Number(first ?? restored),
    second === undefined ? undefined : Number(second),
  ]
  if (address === '#/new') return <NewTool rights={rights} />
  if (address === '#/changes') return <Changes />
  if (proposal !== undefined) return <ProposalView key={proposal} id={Number(proposal)} rights={rights} />
  if (address === '#/proposals') return <Proposals />
  if (view === undefined) return null
  if (number === undefined) return <List key={view} view={view as View} rights={rights} />
  if (version) return <Past key={address} view={view as View} {...{ id, version, other }} />
  return view === 'agents' ? <Agent key={id} {...{ id, rights }} /> : <Tool key={id} {...{ id, rights }} />
}

const LINKS = { '#/agents': 'Agents', '#/tools': 'Tools', '#/proposals': 'Proposals', '#/changes': 'Changes' }
const WORDS = { basic: '', 'manage:actions': 'manages tools', admin: 'administrator' }

function Head({ address, rights: { me, writes, proposes } }: { address: string; rights: Rights }) {
  const current = address === '#/new' ? '#/tools' : address
  return (
    <>
      <nav aria-label="Views">
        {Object.entries(LINKS).map(([link, name]) => (
          <a href={link} aria-current={current.startsWith(link) ? 'page' : 'false'}>
            {name}
          </a>
        ))}
      </nav>
      <p class="who">
        <bdi>{visible(me.user.email)}</bdi> {writes ? WORDS[me.permission] : proposes ? 'proposes only' : 'reads only'}
      </p>
      <a href="console">Sign out</a>
    </>
  )
}

function App() {
  const [rights, setRights] = useState<Rights>()
  const [isEnded, setEnded] = useState(false)
  const [address, setAddress] = useState(location.hash)
  const [wanted, setWanted] = useState<string>()
  const [fault, setFault] = useState<unknown>()
  const now = useRef(address)
  const go = () => {
    const { hash } = location
    if (hash === now.current) return
    if (unsaved.size > 0) {
      history.replaceState(null, '', now.current)
      return setWanted(hash)
    }
    if (!ADDRESS.test(hash)) return location.replace('#/agents')
    now.current = hash
    setFault(undefined)
    setAddress(hash)
  }
  useLayoutEffect(() => {
    addEventListener(SESSION_ENDED, () => setEnded(true))
    addEventListener('error', ({ error, message }) => setFault(error ?? new Error(message)))
    addEventListener('unhandledrejection', ({ reason }) => setFault(reason))
    addEventListener('hashchange', go)
  }, [])
  const leave = () => {
    unsaved.clear()
    setWanted(undefined)
    location.hash = wanted ?? ''
  }
  const signedIn = (me: Me) => {
    setRights(rightsOf(me))
    setEnded(false)
    if (!ADDRESS.test(location.hash)) location.replace('#/agents')
  }
  return (
    <>
      <header>
        <p class="brand">Agents and tools</p>
        {rights && <Head {...{ address, rights }} />}
      </header>
      <main>
        <Problem problem={fault} />
        {(!rights || isEnded) && <SignIn isEnded={isEnded} onSignedIn={signedIn} />}
        <div hidden={isEnded}>{rights && <Main {...{ address, rights }} />}</div>
      </main>
      {wanted !== undefined && (
        <Dialog title="Leave without saving?" onClose={() => setWanted(undefined)}>
          <p>{visible([...unsaved].join(', '))} would be lost.</p>
          <form method="dialog" class="bar end">
            <Button class="main" label="Stay here" />
            <Button label="Leave" onClick={leave} />
          </form>
        </Dialog>
      )}
    </>
  )
}

render(<App />, document.getElementById('page') as HTMLElement)
