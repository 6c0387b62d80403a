// With `validatorUrl: null`, the page contacts no other server. A token entered at "Authorize" stays in the page.
SwaggerUIBundle({ url: 'openapi.json', dom_id: '#reference', tryItOutEnabled: true, validatorUrl: null })
