import { defineConfig } from '@hey-api/openapi-ts'

export default defineConfig({
  input: '../../openapi/openapi.json',
  output: 'generated/hey-api',
  plugins: ['@hey-api/client-fetch', '@hey-api/typescript', { name: '@hey-api/sdk', validator: true }, 'zod'],
})
