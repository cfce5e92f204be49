"""Routes under `/v1`: one function for each verb. They may import the exchange, the bodies and the pages."""
