import t from 'tap'
import { PersonaSnapshot, PersonaUpsertRequest } from '../../src/persona/schema.js'
import { CustomToolUpdate, ToolSnapshot } from '../../src/tool/schema.js'

/** The fields as the interface document lists them: what clients of the public product send and read. */
const INTERFACE_DOCUMENT: Record<string, { required: string; optional: string }> = {
  PersonaUpsertRequest: {
    required:
      'name description document_set_ids num_chunks is_public recency_bias llm_filter_extraction ' +
      'llm_relevance_filter tool_ids system_prompt task_prompt datetime_aware',
    optional:
      'llm_model_provider_override llm_model_version_override starter_messages users groups ' +
      'remove_image uploaded_image_id icon_name search_start_date label_ids is_default_persona ' +
      'display_priority user_file_ids replace_base_system_prompt',
  },
  PersonaSnapshot: {
    required:
      'id name description is_public is_visible uploaded_image_id icon_name user_file_ids ' +
      'display_priority is_default_persona builtin_persona starter_messages llm_relevance_filter ' +
      'llm_filter_extraction tools labels owner users groups document_sets llm_model_provider_override ' +
      'llm_model_version_override num_chunks',
    optional: 'system_prompt replace_base_system_prompt task_prompt datetime_aware',
  },
  CustomToolUpdate: {
    required: '',
    optional: 'name description definition custom_headers passthrough_auth oauth_config_id',
  },
  ToolSnapshot: {
    required: 'id name description definition display_name in_code_tool_id custom_headers passthrough_auth',
    optional:
      'mcp_server_id user_id oauth_config_id oauth_config_name enabled chat_selectable ' +
      'agent_creation_selectable default_enabled',
  },
}

t.test(
  'every field of the interface document, in its order; a field beside them is one that clients need not know',
  async t => {
    for (const schema of [PersonaUpsertRequest, PersonaSnapshot, CustomToolUpdate, ToolSnapshot]) {
      const listed = INTERFACE_DOCUMENT[String(schema.$id)]
      const required = listed?.required.split(' ').filter(Boolean) ?? []
      const published = [...required, ...(listed?.optional.split(' ') ?? [])]
      t.ok(published.length > 0)
      const fields = Object.keys(schema.properties)
      t.strictSame(
        fields.filter(name => published.includes(name)),
        published,
        String(schema.$id),
      )
      const demanded: readonly string[] = schema.required ?? []
      const isRequest = schema === PersonaUpsertRequest || schema === CustomToolUpdate
      t.strictSame(
        isRequest ? demanded : demanded.filter(name => published.includes(name)),
        required,
        `${schema.$id} demands of a request only what the interface document does, and answers all of it`,
      )
    }
  },
)
