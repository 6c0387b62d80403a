import { defineConfig } from 'orval'

export default defineConfig({
  agents: {
    input: '../../openapi/openapi.json',
    output: { target: 'generated/orval.ts', client: 'fetch', mode: 'single' },
  },
})
