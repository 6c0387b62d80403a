import { type ComponentChildren, render } from 'preact'
import { useErrorBoundary, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Agent } from './agent.js'
import { List } from './list.js'
import { Button, Dialog, Field, View as Page, Problem, SESSION_ENDED, SIGNED_IN, useAction } from './parts.js'
import { Changes } from './past.js'
import { Proposals, ProposalView } from './proposals.js'
import { ask, type Me, type Rights, rightsOf, STORED, setToken, unsaved, type View } from './service.js'
import { visible } from './texts.js'
import { Tool } from './tool.js'

const NOTE = `It begins with pat_, sa_, ro_ or pp_. It stays in the memory of this page, and is gone when you reload or close it.
  An operator makes one with "agentctl token create".`

function SignIn({ title, onSignedIn }: { title: string; onSignedIn: (me: Me) => void }) {
  const form = useRef<HTMLFormElement>(null)
  useLayoutEffect(() => form.current?.querySelector('input')?.focus(), [])
  const { problem, act } = useAction(async (event: Event) => {
    event.preventDefault()
    const token = String(new FormData(form.current ?? undefined).get('token')).trim()
    if (!/^[!-~]+$/.test(token)) throw 'The token has a character that no token has: copy it again'
    setToken(token)
    onSignedIn((await ask<Me>('GET', 'me')).data)
  })
  const field = { type: 'password', name: 'token', required: true, readOnly: false }
  return (
    <form class="signIn" onSubmit={act} ref={form}>
      <h1>{title}</h1>
      <Field label="Access token" {...field} />
      <p class="note">{NOTE}</p>
      <Button class="main" label="Sign in" />
      <Problem problem={problem} />
    </form>
  )
}

/** Ids must be numbers, because they become parts of requests. */
const ADDRESS = /^#\/(?:(agents|tools)(?:\/(\d+))?|new|changes|proposals(?:\/(\d+))?)$/

function Main({ address, rights }: { address: string; rights: Rights }) {
  const [, view, number, proposal] = ADDRESS.exec(address) ?? []
  const id = Number(number)
  if (address === '#/new' && !rights.makesTools)
    return <Page title="New tool" state="This token cannot create tools." loaded={{ data: true, again: () => {} }} />
  if (address === '#/new') return <Tool id={0} {...{ rights }} />
  if (address === '#/changes') return <Changes writes={rights.writes} />
  if (proposal) return <ProposalView key={proposal} id={Number(proposal)} rights={rights} />
  if (address === '#/proposals') return <Proposals />
  if (!number) return view ? <List key={view} view={view as View} rights={rights} /> : null
  return view === 'agents' ? <Agent key={id} {...{ id, rights }} /> : <Tool key={id} {...{ id, rights }} />
}

const LINKS = { '#/agents': 'Agents', '#/tools': 'Tools', '#/proposals': 'Proposals', '#/changes': 'Changes' }

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
        <bdi>{visible(me.user.email)}</bdi> {writes ? '' : proposes ? 'proposes only' : 'reads only'}
      </p>
      <a href="console">Sign out</a>
    </>
  )
}

/** Replaces a view that fails by its error, so that no part of it stays. */
function Guard({ children }: { children: ComponentChildren }) {
  const [fault, again] = useErrorBoundary()
  return fault ? <Problem problem={fault} again={again} /> : children
}

function App() {
  const [rights, setRights] = useState<Rights>()
  const [isEnded, setEnded] = useState(false)
  const [address, setAddress] = useState(location.hash)
  const [fault, setFault] = useState<unknown>()
  const [turn, setTurn] = useState(0)
  const now = useRef(address)
  const go = () => {
    const { hash } = location
    if (hash === now.current) return
    if (unsaved.size > 0 && !confirm(`Leave without saving? ${visible([...unsaved].join(', '))} would be lost.`))
      return history.replaceState(null, '', now.current)
    unsaved.clear()
    if (!ADDRESS.test(hash)) return location.replace('#/agents')
    now.current = hash
    setFault(undefined)
    setAddress(hash)
  }
  useLayoutEffect(() => {
    addEventListener(STORED, () => setTurn(before => before + 1))
    addEventListener(SESSION_ENDED, () => setEnded(true))
    addEventListener('error', ({ error, message }) => setFault(error ?? new Error(message)))
    addEventListener('unhandledrejection', ({ reason }) => setFault(reason))
    addEventListener('hashchange', go)
  }, [])
  const signedIn = (me: Me) => {
    setRights(rightsOf(me))
    setEnded(false)
    dispatchEvent(new Event(SIGNED_IN))
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
        <Guard key={`${turn} ${address}`}>
          {rights ? <Main {...{ address, rights }} /> : <SignIn title="Sign in" onSignedIn={signedIn} />}
        </Guard>
        {rights && isEnded && (
          <Dialog title="Your session has ended" onClose={() => setEnded(false)}>
            <SignIn title="Sign in again, to go on where you were" onSignedIn={signedIn} />
          </Dialog>
        )}
      </main>
    </>
  )
}

render(<App />, document.getElementById('page') as HTMLElement)
