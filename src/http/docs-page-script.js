/* The script of the page at `/docs`; it runs in the browser. What is kept: the token, in this tab's session storage. */

const reference = document.getElementById('reference')
const field = document.getElementById('token')
const state = document.getElementById('token-state')
const KEY = 'token'

/** Sends the token with every request to this service; the document itself needs none. */
function authorised(request) {
  const token = sessionStorage.getItem(KEY)
  const isOurs = new URL(request.url, location.href).origin === location.origin
  if (token !== null && isOurs && !request.loadSpec) request.headers.Authorization = `Bearer ${token}`
  return request
}

function showState(sentence) {
  const held = sessionStorage.getItem(KEY) !== null
  state.textContent =
    sentence ?? (held ? 'A token is set: requests carry it.' : 'No token yet: requests are answered 401.')
}

document.getElementById('access').addEventListener('submit', event => {
  event.preventDefault()
  // Pasted with or without the word that the header begins with.
  const token = field.value.trim().replace(/^(authorization: *)?bearer +/i, '')
  if (/^[\x21-\x7e]+$/.test(token)) {
    sessionStorage.setItem(KEY, token)
    field.value = ''
    showState()
  } else showState('That is not a token: it has no blanks and only letters, digits and signs.')
})

document.getElementById('forget').addEventListener('click', () => {
  sessionStorage.removeItem(KEY)
  field.value = ''
  showState()
})

const dark = matchMedia('(prefers-color-scheme: dark)')
const showScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', showScheme)

/** Names what the library leaves without a name for who cannot see the page, and lets the keyboard reach what scrolls. */
function nameControls() {
  for (const row of reference.querySelectorAll('tr[data-param-name]')) {
    for (const control of row.querySelectorAll('input, select, textarea')) {
      control.setAttribute('aria-label', row.dataset.paramName)
    }
  }
  const names = [
    ['textarea.body-param__text', 'Request body'],
    ['.examples-select select', 'Example'],
    ['select', 'Media type'],
  ]
  for (const [selector, name] of names) {
    for (const control of reference.querySelectorAll(selector)) {
      if (!control.hasAttribute('aria-label')) control.setAttribute('aria-label', name)
    }
  }
  for (const [index, table] of reference.querySelectorAll('[role="region"]').entries()) {
    table.setAttribute('aria-label', `Answers ${index + 1}`)
  }
  for (const block of reference.querySelectorAll('pre:not(.version)')) block.tabIndex = 0
}

const nothing = () => () => null

showState()
document.getElementById('use').disabled = false // until here, a press would submit the form itself
showScheme()
new MutationObserver(nameControls).observe(reference, { childList: true, subtree: true })
globalThis.SwaggerUIBundle({
  url: 'openapi.json',
  domNode: reference,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  syntaxHighlight: { activated: false }, // its colours are too faint, and a long answer takes seconds to draw
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  requestInterceptor: authorised,
  // The form above takes the token, and there is one server: this one.
  plugins: [
    {
      wrapComponents: {
        ServersContainer: nothing,
        authorizeBtn: nothing,
        authorizeOperationBtn: nothing,
        InfoUrl: nothing,
      },
    },
  ],
})
