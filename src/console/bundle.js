// Builds the page in build/page from src/console/page: the script with its libraries, the worker, the styles, and static files.
import { cpSync, mkdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const folder = name => fileURLToPath(new URL(name, import.meta.url))
const [from, to] = [folder('page/'), folder('../../build/page/')]
mkdirSync(to, { recursive: true })
for (const file of ['page.html', 'icon.svg', 'docs.html', 'docs.js']) cpSync(from + file, to + file)
await build({
  entryPoints: ['main.tsx', 'reader.ts', 'main.css'].map(name => from + name),
  outdir: to,
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2023',
  tsconfig: `${from}tsconfig.json`,
  logLevel: 'warning',
})
