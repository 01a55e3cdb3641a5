"""An authorization server in front of providers that register no clients: consent, own tokens, a vault."""
