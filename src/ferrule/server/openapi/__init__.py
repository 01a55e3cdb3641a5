"""Tools and resources from the OpenAPI description of a web API."""
