/** The page at `/docs`: names no program, holds nothing inline, and every address is relative, so that a path prefix of a proxy works. */
export const DOCS_PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Agent and Custom Tool Management</title>
<link rel="icon" href="docs/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="stylesheet" href="docs/page.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/page.js" type="module"></script>
</head>
<body>
<header class="access">
<form id="access">
<label for="token">Token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false" placeholder="pat_..." aria-describedby="token-help">
<button id="use" type="submit" disabled>Use it</button>
<button id="forget" type="button">Forget it</button>
</form>
<p id="token-state" role="status"></p>
<p id="token-help">The first start with the demo organisation prints one; <code>agentctl token create --for EMAIL</code> makes
another. It is kept in this tab until you close it, and sent in the <code>Authorization</code> header only.
The document itself: <a href="openapi.json">openapi.json</a>.</p>
</header>
<noscript><p>This page needs JavaScript. <a href="openapi.json">openapi.json</a> says the same.</p></noscript>
<div id="reference"></div>
</body>
</html>
`

export const DOCS_ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1f5f99"/><path d="M4 5h8M4 8h5M4 11h7" stroke="#fff" stroke-width="1.6"/></svg>`

/** Over the library's own style sheet: what a phone, a dark room and weak eyes need. */
export const DOCS_STYLE = `
body { margin: 0; background: #fff; color: #22262e; }
html.dark-mode body { background: #1c2022; color: #e4e6e6; }
.access { max-width: 1460px; margin: 0 auto; padding: 16px 20px 0; box-sizing: border-box; font: 14px/1.5 sans-serif; }
.access form { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
.access label { font-weight: 600; }
.access input { flex: 1 1 16em; min-width: 0; max-width: 30em; font: 14px monospace; padding: 8px; border: 1px solid #767b85; border-radius: 4px; background: #fff; color: #22262e; }
.access button { font: 600 14px sans-serif; padding: 8px 14px; border: 1px solid #1f5f99; border-radius: 4px; background: #1f5f99; color: #fff; cursor: pointer; }
.access button[type="button"] { background: transparent; color: #1f5f99; }
.access p { margin: 8px 0 0; max-width: 60em; }
.access a { color: #1f5f99; }
html.dark-mode .access input { background: #22282b; color: #e4e6e6; }
html.dark-mode .access a, html.dark-mode .access button[type="button"] { color: #8cc4f5; border-color: #8cc4f5; }
html .swagger-ui .info { margin: 24px 0; }
html .swagger-ui .info .title { font-size: 28px; overflow-wrap: anywhere; }
html .swagger-ui .info .title small, html .swagger-ui .info .title small.version-stamp { background: #4b5260; }
html:not(.dark-mode) .swagger-ui .link, html:not(.dark-mode) .swagger-ui .info a { color: #1f5f99; }
html .swagger-ui .parameter__in, html .swagger-ui .json-schema-2020-12-expand-deep-button { color: #565c66; }
html .swagger-ui .btn.execute { background: #1f5f99; border-color: #1f5f99; color: #fff; }
html .swagger-ui .btn.cancel { color: #b3261e; border-color: #b3261e; background: #fff; }
html .swagger-ui .download-contents { background: #4b5260; }
html .swagger-ui .json-schema-2020-12__constraint { background: #7a4b00; color: #fff; }
html .swagger-ui .json-schema-2020-12__constraint--string { background: #7a3b00; }
html .swagger-ui .opblock.opblock-get .opblock-summary-method { background: #1f5f99; color: #fff; }
html .swagger-ui .opblock.opblock-patch .opblock-summary-method { background: #0f6b5a; color: #fff; }
html .swagger-ui .opblock.opblock-put .opblock-summary-method { background: #8a4b08; color: #fff; }
html .swagger-ui .opblock.opblock-post .opblock-summary-method { background: #17683f; color: #fff; }
html .swagger-ui .opblock.opblock-head .opblock-summary-method { background: #6a3fa0; color: #fff; }
html .swagger-ui td.header-col, html .swagger-ui .headers th { color: inherit; overflow-wrap: anywhere; }
html .swagger-ui pre, html .swagger-ui pre code, html .swagger-ui pre span { white-space: pre-wrap; overflow-wrap: anywhere; }
html.dark-mode .swagger-ui .parameter__in, html.dark-mode .swagger-ui .json-schema-2020-12-expand-deep-button { color: #b5bac0; }
html.dark-mode .swagger-ui .opblock:is(.opblock-get, .opblock-put, .opblock-post, .opblock-patch) .opblock-section-header { background: #2a3033; }
html.dark-mode .swagger-ui .examples-select__section-label, html.dark-mode .swagger-ui .example__section-header,
html.dark-mode .swagger-ui td.header-col, html.dark-mode .swagger-ui .headers th { color: #e4e6e6; }
html.dark-mode .swagger-ui .opblock .opblock-section-header .try-out__btn.cancel { color: #ffb4ab; border-color: #ffb4ab; background: transparent; }
@media (max-width: 700px) {
  .access { padding: 12px 10px 0; }
  html .swagger-ui .wrapper { padding: 0 10px; }
  html .swagger-ui .opblock-summary-path { max-width: none; overflow-wrap: anywhere; }
  html .swagger-ui .opblock-summary-control { flex-wrap: wrap; }
  html .swagger-ui table.parameters > thead, html .swagger-ui table.responses-table > thead { display: none; }
  html .swagger-ui table.parameters, html .swagger-ui table.parameters > tbody, html .swagger-ui table.parameters > tbody > tr, html .swagger-ui table.parameters > tbody > tr > td,
  html .swagger-ui table.responses-table, html .swagger-ui table.responses-table > tbody, html .swagger-ui table.responses-table > tbody > tr, html .swagger-ui table.responses-table > tbody > tr > td { display: block; width: auto; min-width: 0; max-width: 100%; box-sizing: border-box; }
  html .swagger-ui table.headers { table-layout: fixed; }
  html .swagger-ui .parameters-col_description input, html .swagger-ui .parameters-col_description select, html .swagger-ui textarea { max-width: 100%; min-width: 0; width: 100%; box-sizing: border-box; }
  html .swagger-ui .response-col_links { display: none; }
}
`
