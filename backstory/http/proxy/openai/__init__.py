"""OpenAI's protocol: chat completions and the Responses API, also at the paths of Azure OpenAI.

It may import `protocol` and `answers`, and nothing else of the server.
"""
