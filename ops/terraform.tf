# An agent with a tool, by the published Terraform provider.
terraform {
  required_providers { onyx = { source = "onyx-dot-app/onyx" } }
}
provider "onyx" { endpoint = "http://127.0.0.1:8080" }
resource "onyx_agent" "support" {
  name     = "Support"
  tool_ids = [onyx_custom_tool.orders.id]
}
resource "onyx_custom_tool" "orders" {
  name                      = "Orders"
  definition                = file("orders.json")
  custom_headers_wo         = { "X-Api-Key" = var.orders_key }
  custom_headers_wo_version = 1 # increase it after each change of the header values
}
variable "orders_key" {
  sensitive = true
  ephemeral = true # or it would be stored in a saved plan
}
