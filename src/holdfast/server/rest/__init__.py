"""REST: the verbs as plain HTTP and JSON, described by an OpenAPI document that is made from them."""
