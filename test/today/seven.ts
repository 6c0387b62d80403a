/** The body of an agent as today's clients send it, with the seven required fields. */
export const SEVEN = {
  ...{ name: 'Support', description: '', document_set_ids: [], tool_ids: [] },
  ...{ system_prompt: 'Be brief.', task_prompt: '', datetime_aware: false },
}
